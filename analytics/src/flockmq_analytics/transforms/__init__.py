"""What a day's events come to: DataFrames in, DataFrames out, nothing else. Each function names its result's columns.

Times are instants; hours and minutes begin where they do in the session's time zone, the cluster's.
"""
