"""The configuration of one node. `values` has the kinds of value, `schema` the keys, `layers` where they are said,
`whole` puts them together.

This file imports nothing, so that a part of the broker can take its kinds of value from `values` while `schema` takes
that part's structs.
"""
