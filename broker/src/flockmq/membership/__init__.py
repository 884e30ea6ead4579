"""Who is in the cluster and who leads it: links, heartbeats, slots, versions, the cluster's time."""
