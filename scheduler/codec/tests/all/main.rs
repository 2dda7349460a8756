//! The integration tests of the codec, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `codec` | every command, outcome and row as bytes, and back |

mod codec;
