"""The replicated log: every node keeps a copy of the cluster's tables, in step with one Redis Stream per shard.

Read in this order: `schema` (the tables), `entry` (the format of log entries), `tables` (how entries are applied),
`functions.lua` (what Redis checks), `rlog` (what a node does with all of this).
"""
