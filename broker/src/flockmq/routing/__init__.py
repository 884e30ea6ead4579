"""From a topic to those who get the message: filters, fan-outs, shared subscriptions, back-pressure. Pure."""
