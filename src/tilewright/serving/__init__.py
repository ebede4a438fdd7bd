"""Serving compiled networks: a bounded queue, instances on cores of their own, deadlines, faults.

with tilewright.serve({"a": "folder-a", "b": "folder-b"}, instances="2x1") as server:
    answer = server.submit("a", x=array, deadline_s=0.05).result()
"""
