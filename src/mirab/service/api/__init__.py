"""The REST API: routes, problems, paging, streams, and the servers that listen."""
