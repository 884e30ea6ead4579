"""`flockmq ctl`: a running cluster, seen and managed by the REST API of any of its nodes.

`command` is what a user types, a file a noun has its verbs, `api` asks the node, `credentials` reads what is no
argument.
"""
