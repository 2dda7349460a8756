//! Messages as JSON: what a bundle holds of the responses of schedulers, for people and for this command.
//!
//! Not here: which parts of a message may leave the cluster ([`redact`](super::redact)).
//!
//! Invariant: a message that was written as JSON is read back as the same message.

use std::sync::LazyLock;

use anyhow::Context as _;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(berth_proto::DESCRIPTOR_SET).expect("the build wrote descriptors")
});

/// The messages of a method.
#[derive(Clone, Debug)]
pub(super) struct Method {
    /// That of its request.
    pub(super) input: MessageDescriptor,
    /// That of its response.
    pub(super) output: MessageDescriptor,
}

/// Returns the method with this path, as `/berth.host.v1.HostService/ListHosts`, if this build knows it.
pub(super) fn method(path: &str) -> Option<Method> {
    let (service, name) = path.trim_start_matches('/').split_once('/')?;
    let service = POOL.get_service_by_name(service)?;
    let method = service.methods().find(|method| method.name() == name)?;
    Some(Method {
        input: method.input(),
        output: method.output(),
    })
}

/// Returns the descriptor of a message.
pub(crate) fn message(name: &str) -> MessageDescriptor {
    let message = POOL.get_message_by_name(name);
    message.expect("a message of this build")
}

/// Reads a message of the wire.
///
/// # Errors
///
/// It is none of this kind.
pub(super) fn decode(kind: &MessageDescriptor, bytes: &[u8]) -> anyhow::Result<DynamicMessage> {
    let message = DynamicMessage::decode(kind.clone(), bytes);
    message.with_context(|| format!("a message that is no {}", kind.full_name()))
}

/// Returns a message as JSON, with the names of the fields as in the .proto files.
///
/// # Errors
///
/// When it has a value that JSON has not.
pub(super) fn to_json(message: &DynamicMessage) -> anyhow::Result<Value> {
    let options = SerializeOptions::new().use_proto_field_name(true);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// Reads a message of JSON.
///
/// # Errors
///
/// It is none of this kind.
pub(super) fn from_json(kind: &MessageDescriptor, json: Value) -> anyhow::Result<DynamicMessage> {
    let message = DynamicMessage::deserialize(kind.clone(), json);
    message.with_context(|| format!("JSON that is no {}", kind.full_name()))
}

/// Returns a message as on the wire.
pub(super) fn encode(message: &DynamicMessage) -> Vec<u8> {
    message.encode_to_vec()
}
