"""The replicated log: every node's copy of the cluster's tables, kept alike by one Redis Stream a shard.

Read in this order: `shards` (what is in which table), `entry` (what stands in the log), `tables` (how it is applied),
`functions.lua` (what Redis checks), `rlog` (what a node does with it all).
"""
