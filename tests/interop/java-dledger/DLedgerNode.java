import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;

/** One stock DLedger node: group, id, peers, store, heartbeat ms, vote ms from, to, file sizes. */
public final class DLedgerNode {
    public static void main(String[] args) {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(args[0]);
        config.setSelfId(args[1]);
        config.setPeers(args[2]);
        config.setStoreBaseDir(args[3]);
        config.setHeartBeatTimeIntervalMs(Integer.parseInt(args[4]));
        config.setMinVoteIntervalMs(Integer.parseInt(args[5]));
        config.setMaxVoteIntervalMs(Integer.parseInt(args[6]));
        config.setMappedFileSizeForEntryData(Integer.parseInt(args[7]));
        config.setMappedFileSizeForEntryIndex(Integer.parseInt(args[8]));
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
    }
}
