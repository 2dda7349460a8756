//! What the tests that cross crates share: harnesses and helpers. No product code is here.
//!
//! | room | what |
//! |---|---|
//! | `tests/layering.rs` | who may import whom |
