"""The configuration of one node.

`schema` defines the keys, `values` their types. `sources` reads the file, the environment and the command line,
`conversion` converts and checks each value, and `load` merges everything into a `Config`.
"""
