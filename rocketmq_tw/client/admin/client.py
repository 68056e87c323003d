"""The admin client: the requests of all families."""

from rocketmq_tw.client.admin.brokers import BrokerAdmin
from rocketmq_tw.client.admin.groups import GroupAdmin, MemberAdmin
from rocketmq_tw.client.admin.messages import MessageAdmin
from rocketmq_tw.client.admin.name_servers import NameServerAdmin
from rocketmq_tw.client.admin.topics import TopicAdmin


class AdminClient(NameServerAdmin, TopicAdmin, MessageAdmin, GroupAdmin, MemberAdmin, BrokerAdmin):
    """Asks name servers and brokers about themselves, and changes them.

    With `tls` its connections are TLS as the `tls.client` keys say. `remoting` shares connections;
    `close` ends them. `timeout`: seconds for each answer.
    """
