"""The asynchronous half of the client, and the source of the synchronous one.

When the package is built, `_sync` is made of these modules, without `async` and `await`
(`build_step.py`). What only this half has is between `# async only: begin` and `# async only: end`.
"""
