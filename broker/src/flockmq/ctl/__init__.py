"""`flockmq ctl`: shows and manages a running cluster through the REST API of any of its nodes.

`command` parses the arguments. Each noun has a file with its verbs. `api` calls the REST API. `credentials` reads
secrets, which aren't arguments.
"""
