"""Placement: the ledger of resources that other services share. Names, groups and trees are pure; the client and the embedded
service are not."""
