"""From a topic to its receivers: filters, fan-outs, shared subscriptions, back-pressure. No I/O."""
