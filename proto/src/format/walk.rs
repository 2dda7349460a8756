//! Walking through stored bytes, field by field.

use berth_domain::version::ServiceVersion;
use prost::encoding::{WireType, decode_varint, encode_key, encode_varint};

use super::{Enumeration, Field, Format, Kind, Message};
use crate::wire::take;

/// How deep messages may lie in each other; as deep as they can be decoded.
const DEPTH_MAX: usize = 100;

/// The newest part of stored bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// The version that they need.
    pub version: ServiceVersion,
    /// What needs it, as `berth.state.v1.Envelope.finalize_upgrade`; empty where nothing needs more
    /// than the oldest.
    pub what: String,
}

/// Why bytes cannot be read by this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// They are no protobuf message.
    #[error("bytes of {0} are damaged")]
    Damaged(String),
    /// A field has a number that this build does not know.
    #[error("{message} has field {number}, which this build does not know")]
    Field {
        /// Of which message.
        message: String,
        /// Its number.
        number: u32,
    },
    /// A value has a number that this build does not know.
    #[error("{enumeration} has value {number}, which this build does not know")]
    Value {
        /// Of which enumeration.
        enumeration: String,
        /// Its number.
        number: i32,
    },
}

/// The newest that was met so far, without a copy of its name.
struct Met<'f> {
    version: ServiceVersion,
    what: Option<(&'f str, &'f str)>,
}

impl Format {
    pub(super) fn walk(&self, root: usize, bytes: &[u8]) -> Result<Newest, Fault> {
        let mut met = Met {
            version: ServiceVersion::OLDEST,
            what: None,
        };
        self.visit(root, bytes, 0, &mut met)?;
        let what = met.what.map(|(owner, item)| format!("{owner}.{item}"));
        Ok(Newest {
            version: met.version,
            what: what.unwrap_or_default(),
        })
    }

    fn visit<'f>(
        &'f self,
        message: usize,
        mut bytes: &[u8],
        depth: usize,
        met: &mut Met<'f>,
    ) -> Result<(), Fault> {
        let message = &self.messages[message];
        if depth > DEPTH_MAX {
            return Err(message.damaged());
        }
        while !bytes.is_empty() {
            let lying = take(&mut bytes).ok_or_else(|| message.damaged())?;
            let field = message.field(lying.number)?;
            met.note(field.since.version, &message.name, &field.name);
            match field.kind {
                Kind::Plain => {}
                Kind::Message(inner) if lying.wire == WireType::LengthDelimited => {
                    self.visit(inner, lying.content, depth + 1, met)?;
                }
                Kind::Message(_) => return Err(message.damaged()),
                Kind::Enumeration(inner) => {
                    let enumeration = &self.enumerations[inner];
                    // One value, or many packed.
                    let mut values = lying.content;
                    while !values.is_empty() {
                        let value = decode_varint(&mut values).map_err(|_| message.damaged())?;
                        enumeration.note(value, met)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Leaves out what is newer than `version` and may be left out.
    pub(super) fn shorten(
        &self,
        message: usize,
        mut bytes: &[u8],
        version: ServiceVersion,
    ) -> Result<Vec<u8>, Fault> {
        let message = &self.messages[message];
        let mut shorter = Vec::with_capacity(bytes.len());
        while !bytes.is_empty() {
            let lying = take(&mut bytes).ok_or_else(|| message.damaged())?;
            let field = message.field(lying.number)?;
            if field.since.version > version && field.since.may_be_left_out {
                continue;
            }
            match field.kind {
                Kind::Message(inner) => {
                    let content = self.shorten(inner, lying.content, version)?;
                    encode_key(lying.number, WireType::LengthDelimited, &mut shorter);
                    encode_varint(content.len() as u64, &mut shorter);
                    shorter.extend(content);
                }
                Kind::Plain | Kind::Enumeration(_) => shorter.extend(lying.whole),
            }
        }
        Ok(shorter)
    }
}

impl Message {
    fn field(&self, number: u32) -> Result<&Field, Fault> {
        // Most messages have all numbers from 1 on, and this is called for each field of each command.
        let expected = (number as usize).wrapping_sub(1);
        if let Some((found, field)) = self.fields.get(expected)
            && *found == number
        {
            return Ok(field);
        }
        let at = self.fields.binary_search_by_key(&number, |(n, _)| *n);
        let at = at.map_err(|_| Fault::Field {
            message: self.name.clone(),
            number,
        })?;
        Ok(&self.fields[at].1)
    }

    fn damaged(&self) -> Fault {
        Fault::Damaged(self.name.clone())
    }
}

impl Enumeration {
    fn note<'f>(&'f self, value: u64, met: &mut Met<'f>) -> Result<(), Fault> {
        // Negative values are written as 64 bits; what is cut off repeats the sign.
        #[expect(clippy::cast_possible_truncation, reason = "as protobuf reads it")]
        let number = value as i32;
        let known = self.values.get(&number);
        let (name, since) = known.ok_or_else(|| Fault::Value {
            enumeration: self.name.clone(),
            number,
        })?;
        met.note(since.version, &self.name, name);
        Ok(())
    }
}

impl<'f> Met<'f> {
    fn note(&mut self, version: ServiceVersion, owner: &'f str, item: &'f str) {
        if version > self.version {
            self.version = version;
            self.what = Some((owner, item));
        }
    }
}
