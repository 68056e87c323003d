"""Frames of the links between master and slave (docs/formats/ha.md, auto-switch-ha.md)."""

import construct as c

# Classic HA
REPORT = c.Struct("offset" / c.Int64sb)
TRANSFER = c.Struct("offset" / c.Int64sb, "data" / c.Prefixed(c.Int32sb, c.GreedyBytes))

# Auto-switch HA: each frame begins with the sender's state
HANDSHAKE_STATE = 1
TRANSFER_STATE = 2

SLAVE_HANDSHAKE = c.Struct(
    "state" / c.Const(HANDSHAKE_STATE, c.Int32sb),
    "from_last_file" / c.Int16sb,
    "learner" / c.Int16sb,
    "broker_id" / c.Int64sb,
)
SLAVE_REPORT = c.Struct("state" / c.Const(TRANSFER_STATE, c.Int32sb), "offset" / c.Int64sb)
EPOCH = c.Struct("epoch" / c.Int32sb, "start" / c.Int64sb)
MASTER_HANDSHAKE = c.Struct(
    "state" / c.Const(HANDSHAKE_STATE, c.Int32sb),
    "body_size" / c.Rebuild(c.Int32sb, lambda this: len(this.epochs) * EPOCH.sizeof()),
    "log_end" / c.Int64sb,
    "last_epoch" / c.Int32sb,
    "epochs" / c.Array(c.this.body_size // EPOCH.sizeof(), EPOCH),
)
EPOCH_TRANSFER = c.Struct(
    "state" / c.Const(TRANSFER_STATE, c.Int32sb),
    "body_size" / c.Rebuild(c.Int32sb, c.len_(c.this.data)),
    "offset" / c.Int64sb,
    "epoch" / c.Int32sb,
    "epoch_start" / c.Int64sb,
    "confirmed" / c.Int64sb,
    "data" / c.Bytes(c.this.body_size),
)
