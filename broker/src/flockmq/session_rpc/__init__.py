"""The messages between nodes and the owners of client ids: attach, SUBSCRIBE, acknowledgements, detach."""
