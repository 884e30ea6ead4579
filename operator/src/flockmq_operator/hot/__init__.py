"""Edits of `spec.config` that touch nothing but settings which nodes change while they run: pods keep the files that
they have, and the cluster's log says what is other."""
