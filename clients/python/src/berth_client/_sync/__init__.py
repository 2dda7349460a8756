"""The synchronous half of the client. All but its transport is generated from `_async`."""
