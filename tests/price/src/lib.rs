//! What a decision costs: a test, `tests/price`, and nothing else.
