"""Master and slaves of a group: link states without I/O, and the Twisted links.

Public: `classic.service.ClassicHAService` and `classic.client.ClassicHAClient`,
`auto_switch.service.AutoSwitchHAService` and `auto_switch.client.AutoSwitchHAClient`, what they ask
of a log and are asked themselves (`links.interfaces`, `auto_switch.interfaces`),
`links.settings.HASettings` and `links.errors.LinkError`. The rest is theirs alone.
"""
