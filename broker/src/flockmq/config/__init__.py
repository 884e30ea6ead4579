"""The configuration of one node.

`values` has the kinds of value, `documents` reads them, `schema` has the keys, `layers` the places where users say
them, `whole` puts them together.
"""
