-- Endpoints of webhooks and what is to be delivered to them. The relay makes these, too, where it may.

{{webhooks}}
