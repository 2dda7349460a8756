//! The integration tests of the wire formats and of the client, in one binary.
//!
//! | module | what it tests |
//! |---|---|
//! | `csi_wire` | the Container Storage Interface against bytes of its wire |
//! | `filter` | filters of lists on messages |
//! | `format` | the table of what each cluster version added |
//! | `hostile` | reports and assignments with invalid values |
//! | `leader` | the client that follows the leader |
//! | `round_trip` | every conversion in both directions, and damaged bytes |

mod csi_wire;
mod filter;
mod format;
mod hostile;
mod leader;
mod round_trip;
