//! The messages between two simulated hypervisors in different processes.
//!
//! ```text
//!   source                          destination
//!   Offer{domain}          ──▶
//!                          ◀──      Accepted | Refused{message}
//!   Progress … Progress    ──▶                          (the guest runs on the source)
//!   Go{console}            ──▶                          (it stands still on the source)
//!                          ◀──      Arrived             (it runs on the destination)
//!   Progress … Done        ──▶                          (after a Go in post-copy: its memory follows)
//!                          ◀──      Arrived
//!
//!   Query{vm}              ──▶                          (on a new connection, after a break)
//!                          ◀──      Has{state}
//! ```
//!
//! A message is its length as four bytes, big end first, and so many bytes of JSON.
//!
//! Invariant: bounded. No message is longer than [`MESSAGE_MAX`], and no side waits longer than
//! its socket's timeout.

use std::io::{self, Read, Write};

use berth_domain::agent::DomainState;
use berth_domain::id::VmUid;
use serde::{Deserialize, Serialize};

use super::console::Console;
use crate::domain::DomainSpec;

/// The longest message.
pub const MESSAGE_MAX: u32 = 1024 * 1024;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The source has a guest to send.
    Offer {
        /// What it shall be on the destination.
        domain: Box<DomainSpec>,
        /// The configured share of its memory that it touches, in percent.
        #[serde(default)]
        active_percent: Option<u64>,
        /// Whether it is sent encrypted.
        #[serde(default)]
        tls: bool,
    },
    /// The destination receives it.
    Accepted,
    /// The destination does not.
    Refused {
        /// Why.
        message: String,
    },
    /// The source goes on sending.
    Progress,
    /// Everything is sent, or is to follow, and the guest stands still: the destination lets it go
    /// on.
    Go {
        /// What it has written.
        console: Box<Console>,
        /// Whether its memory is to follow.
        #[serde(default)]
        post_copy: bool,
    },
    /// All of the guest's memory has followed it.
    Done,
    /// The guest runs on the destination.
    Arrived,
    /// The source queries the outcome of a guest.
    Query {
        /// The guest.
        vm: VmUid,
    },
    /// The destination's reply.
    Has {
        /// Where it is there.
        state: DomainState,
    },
}

/// Writes one message.
///
/// # Errors
///
/// Those of the socket.
pub fn send(stream: &mut impl Write, message: &Message) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    if length > MESSAGE_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a message of {length} bytes is longer than {MESSAGE_MAX}"),
        ));
    }
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend(json);
    stream.write_all(&frame)
}

/// Reads one message.
///
/// # Errors
///
/// Those of the socket, and what is too long or not a message.
pub fn receive(stream: &mut impl Read) -> io::Result<Message> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > MESSAGE_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the peer announces a message of {length} bytes"),
        ));
    }
    let mut json = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_long_or_cut_ones_are_refused() {
        let mut bytes = Vec::new();
        send(&mut bytes, &Message::Progress).unwrap();
        assert_eq!(receive(&mut bytes.as_slice()).unwrap(), Message::Progress);
        assert!(receive(&mut &bytes[..bytes.len() - 1]).is_err());
        assert!(receive(&mut [0xff, 0xff, 0xff, 0xff].as_slice()).is_err());
        assert!(receive(&mut [0, 0, 0, 2, b'{', b'}'].as_slice()).is_err());
    }
}
