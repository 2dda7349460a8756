//! The reading of single fields, and the error that names them.
//!
//! Every function here takes the field's name and puts it in front of the path of its error, so
//! that an error deep inside a request reads `template.disks[2].format: must be one of …`.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::allocation::Resources;
use berth_domain::cpu_set::CpuSet;
use berth_domain::id::TimeMs;
use berth_domain::name::PmemName;
use berth_domain::refusal::{Code, Refusal};
use berth_domain::resource::ResourceClass;
use berth_domain::topology::MEMORY_MIB_MAX;
use prost_types::{Duration, Timestamp};
use uuid::Uuid;

use super::name::ResourceName;

/// The longest address, URI or identifier of a foreign system, in bytes.
pub const ADDRESS_MAX: usize = 1024;
/// The longest text from a person or program, in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024;
/// The longest list of anything that is not bounded more tightly.
pub const LIST_MAX: usize = 10_000;
/// The shortest lease that is given, in milliseconds.
pub const LEASE_TTL_MS_MIN: u64 = 1_000;
/// The longest lease that is given, in milliseconds.
pub const LEASE_TTL_MS_MAX: u64 = 600_000;

/// An invalid field of a message, with the allowed values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {rule}")]
pub struct Invalid {
    /// The field, as `template.disks[2].format`.
    pub path: String,
    /// What is allowed, as `must be one of …`.
    pub rule: String,
}

impl Invalid {
    /// Returns the error of one field.
    pub fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self {
            path: field.into(),
            rule: rule.into(),
        }
    }

    /// Returns the error of a whole value; [`Self::within`] adds its location.
    pub fn here(rule: impl fmt::Display) -> Self {
        Self {
            path: String::new(),
            rule: rule.to_string(),
        }
    }

    /// Returns the error as seen from the message that holds the value in `field`.
    #[must_use]
    pub fn within(mut self, field: impl fmt::Display) -> Self {
        self.path = if self.path.is_empty() {
            field.to_string()
        } else {
            format!("{field}.{}", self.path)
        };
        self
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::new(Code::InvalidArgument, "INVALID_FIELD", invalid.to_string())
            .with("field", &invalid.path)
            .with("rule", &invalid.rule)
    }
}

/// Reads a message that must be there.
///
/// # Errors
///
/// When it is absent or not valid.
pub fn required<W, D>(value: Option<W>, field: &str) -> Result<D, Invalid>
where
    D: TryFrom<W, Error = Invalid>,
{
    optional(value, field)?.ok_or_else(|| Invalid::new(field, "is required"))
}

/// Reads a message that may be absent.
///
/// # Errors
///
/// When it is not valid.
pub fn optional<W, D>(value: Option<W>, field: &str) -> Result<Option<D>, Invalid>
where
    D: TryFrom<W, Error = Invalid>,
{
    value
        .map(|v| D::try_from(v).map_err(|e| e.within(field)))
        .transpose()
}

/// Reads a list of messages.
///
/// # Errors
///
/// When it has more than `max` entries, or when one is not valid.
pub fn each<W, D>(values: Vec<W>, field: &str, max: usize) -> Result<Vec<D>, Invalid>
where
    D: TryFrom<W, Error = Invalid>,
{
    each_by(values, field, max, D::try_from)
}

/// Reads a list of anything with a function of its own.
///
/// # Errors
///
/// When it has more than `max` entries, or when one is not valid.
pub fn each_by<W, D>(
    values: Vec<W>,
    field: &str,
    max: usize,
    read: impl Fn(W) -> Result<D, Invalid>,
) -> Result<Vec<D>, Invalid> {
    bounded(values.len(), field, max)?;
    values
        .into_iter()
        .enumerate()
        .map(|(index, v)| read(v).map_err(|e| e.within(format_args!("{field}[{index}]"))))
        .collect()
}

/// Checks the length of a list or map.
///
/// # Errors
///
/// When it is more than `max`.
pub fn bounded(length: usize, field: &str, max: usize) -> Result<(), Invalid> {
    if length > max {
        let rule = format!("has {length} entries; at most {max} are allowed");
        return Err(Invalid::new(field, rule));
    }
    Ok(())
}

/// Reads a text of at most `max` bytes; empty is allowed.
///
/// # Errors
///
/// When it is longer.
pub fn text(value: String, field: &str, max: usize) -> Result<String, Invalid> {
    if value.len() > max {
        let rule = format!("has {} bytes; at most {max} are allowed", value.len());
        return Err(Invalid::new(field, rule));
    }
    Ok(value)
}

/// Reads a text of at most `max` bytes that must not be empty.
///
/// # Errors
///
/// When it is empty or longer.
pub fn required_text(value: String, field: &str, max: usize) -> Result<String, Invalid> {
    if value.is_empty() {
        return Err(Invalid::new(field, "is required"));
    }
    text(value, field, max)
}

/// Reads a map of texts.
///
/// # Errors
///
/// When it has more than `entries_max` entries, or a key or value of more than `length_max` bytes.
pub fn text_map(
    map: BTreeMap<String, String>,
    field: &str,
    entries_max: usize,
    length_max: usize,
) -> Result<BTreeMap<String, String>, Invalid> {
    bounded(map.len(), field, entries_max)?;
    if map
        .iter()
        .any(|(k, v)| k.len() > length_max || v.len() > length_max)
    {
        let rule = format!("has a key or value of more than {length_max} bytes");
        return Err(Invalid::new(field, rule));
    }
    Ok(map)
}

/// Reads a resource name, as `hosts/h1`.
///
/// # Errors
///
/// When it is empty or not of this kind.
pub fn name<N: ResourceName>(value: &str, field: &str) -> Result<N, Invalid> {
    if value.is_empty() {
        return Err(Invalid::new(
            field,
            format!("is required, as {}", N::PATTERN),
        ));
    }
    N::from_resource_name(value).map_err(|e| e.within(field))
}

/// Reads a resource name that may be empty.
///
/// # Errors
///
/// When it is not of this kind.
pub fn optional_name<N: ResourceName>(value: &str, field: &str) -> Result<Option<N>, Invalid> {
    (!value.is_empty()).then(|| name(value, field)).transpose()
}

/// Writes a resource name that may be absent.
#[must_use]
pub fn name_or_empty<N: ResourceName>(name: Option<&N>) -> String {
    name.map(N::resource_name).unwrap_or_default()
}

/// Reads a plain UUID, as of `uid` or `request_id`.
///
/// # Errors
///
/// When it is empty or not a UUID.
pub fn uuid<I: From<Uuid>>(value: &str, field: &str) -> Result<I, Invalid> {
    parse_uuid(value)
        .map(I::from)
        .ok_or_else(|| Invalid::new(field, format!("must be {UUID_RULE}, not {}", shown(value))))
}

/// Reads a plain UUID that may be empty.
///
/// # Errors
///
/// When it is not a UUID.
pub fn optional_uuid<I: From<Uuid>>(value: &str, field: &str) -> Result<Option<I>, Invalid> {
    (!value.is_empty()).then(|| uuid(value, field)).transpose()
}

/// How much of a wrong value is repeated, in characters.
const SHOWN_MAX: usize = 64;

/// Returns a wrong value for the message that refuses it: quoted, on one line, and cut where it is
/// long.
pub(crate) fn shown(value: &str) -> String {
    let mut characters = value.chars();
    let kept: String = characters.by_ref().take(SHOWN_MAX).collect();
    match characters.count() {
        0 => format!("{kept:?}"),
        more => format!("{kept:?} and {more} characters more"),
    }
}

pub(super) const UUID_RULE: &str = "a UUID, as 01234567-89ab-cdef-0123-456789abcdef";

/// Accepts the usual form only: one value has one text.
pub(super) fn parse_uuid(text: &str) -> Option<Uuid> {
    if text.len() == 36 {
        Uuid::try_parse(text).ok()
    } else {
        None
    }
}

/// Reads memory of a guest's cell in MiB: no more than any host has, so that what is reckoned with
/// it does not overflow.
///
/// # Errors
///
/// It is more.
pub fn memory_mib(value: u64, field: &str) -> Result<u64, Invalid> {
    if value > MEMORY_MIB_MAX {
        let rule = format!("is {value}; at most {MEMORY_MIB_MAX} MiB are allowed");
        return Err(Invalid::new(field, rule));
    }
    Ok(value)
}

/// Reads a CPU list in the kernel's notation.
///
/// # Errors
///
/// When it is not one.
pub fn cpus(value: &str, field: &str) -> Result<CpuSet, Invalid> {
    value
        .parse()
        .map_err(|e| Invalid::new(field, format!("must be a CPU list: {e}")))
}

/// Reads counted amounts by resource class.
///
/// # Errors
///
/// When there are too many, or when a class has no valid name.
pub fn resources(map: BTreeMap<String, u64>, field: &str) -> Result<Resources, Invalid> {
    keyed(map, field, Ok)
}

/// Reads a map by resource class.
///
/// # Errors
///
/// When there are too many entries, or when a class or a value is not valid.
pub fn keyed<W, D>(
    map: BTreeMap<String, W>,
    field: &str,
    read: impl Fn(W) -> Result<D, Invalid>,
) -> Result<BTreeMap<ResourceClass, D>, Invalid> {
    bounded(map.len(), field, LIST_MAX)?;
    map.into_iter()
        .map(|(class, value)| {
            let at = |e: Invalid| e.within(format_args!("{field}[{class:?}]"));
            let name = ResourceClass::new(&class).map_err(|e| at(Invalid::here(e)))?;
            Ok((name, read(value).map_err(at)?))
        })
        .collect()
}

/// Reads the name of a namespace of persistent memory.
///
/// # Errors
///
/// When it is not valid.
pub fn pmem_name(value: &str, field: &str) -> Result<PmemName, Invalid> {
    PmemName::new(value).map_err(|rule| Invalid::new(field, format!("{rule}")))
}

/// Writes counted amounts by resource class.
#[must_use]
pub fn amounts(resources: &Resources) -> BTreeMap<String, u64> {
    resources
        .iter()
        .map(|(class, amount)| (class.to_string(), *amount))
        .collect()
}

/// Writes a moment.
#[must_use]
pub fn timestamp(time: TimeMs) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(time.0 / 1000).expect("a thousandth of 64 bits fits in 63"),
        nanos: i32::try_from(time.0 % 1000 * 1_000_000).expect("less than a second"),
    }
}

/// Reads a moment that must be there; parts of a millisecond are cut off.
///
/// # Errors
///
/// When it is absent or before 1970.
pub fn time(value: Option<Timestamp>, field: &str) -> Result<TimeMs, Invalid> {
    optional_time(value, field)?.ok_or_else(|| Invalid::new(field, "is required"))
}

/// Reads a moment that may be absent; parts of a millisecond are cut off.
///
/// # Errors
///
/// When it is before 1970.
pub fn optional_time(value: Option<Timestamp>, field: &str) -> Result<Option<TimeMs>, Invalid> {
    let Some(Timestamp { seconds, nanos }) = value else {
        return Ok(None);
    };
    millis(seconds, nanos)
        .map(|ms| Some(TimeMs(ms)))
        .ok_or_else(|| Invalid::new(field, "must be a moment since 1970"))
}

/// Writes a duration.
#[must_use]
pub fn duration(ms: u64) -> Duration {
    let Timestamp { seconds, nanos } = timestamp(TimeMs(ms));
    Duration { seconds, nanos }
}

/// Reads a duration in milliseconds that may be absent.
///
/// # Errors
///
/// When it is negative.
pub fn optional_duration_ms(value: Option<Duration>, field: &str) -> Result<Option<u64>, Invalid> {
    let Some(Duration { seconds, nanos }) = value else {
        return Ok(None);
    };
    millis(seconds, nanos)
        .map(Some)
        .ok_or_else(|| Invalid::new(field, "must be a duration of zero or more"))
}

/// Reads the duration of a lease, in milliseconds.
///
/// # Errors
///
/// When it is absent or out of bounds.
pub fn lease_ttl_ms(value: Option<Duration>, field: &str) -> Result<u64, Invalid> {
    optional_duration_ms(value, field)?
        .filter(|ms| (LEASE_TTL_MS_MIN..=LEASE_TTL_MS_MAX).contains(ms))
        .ok_or_else(|| Invalid::new(field, "is required, 1 second to 10 minutes"))
}

fn millis(seconds: i64, nanos: i32) -> Option<u64> {
    let seconds = u64::try_from(seconds).ok()?;
    let nanos = u64::try_from(nanos).ok().filter(|n| *n < 1_000_000_000)?;
    seconds.checked_mul(1000)?.checked_add(nanos / 1_000_000)
}

/// Reads a choice.
///
/// # Errors
///
/// When it is unspecified or not known.
pub fn choice<W, D>(value: i32, field: &str) -> Result<D, Invalid>
where
    W: TryFrom<i32> + Default,
    D: TryFrom<W, Error = Invalid>,
{
    // A number that this build does not know is refused like none at all.
    D::try_from(W::try_from(value).unwrap_or_default()).map_err(|e| e.within(field))
}

/// Implements both directions between a domain enum and a wire enum that also has `Unspecified`.
macro_rules! choices {
    ($domain:ty => $wire:ty { $($variant:ident),+ $(,)? }) => {
        impl From<$domain> for $wire {
            fn from(value: $domain) -> Self {
                type Domain = $domain;
                match value {
                    $(Domain::$variant => Self::$variant,)+
                }
            }
        }

        impl TryFrom<$wire> for $domain {
            type Error = $crate::convert::field::Invalid;

            fn try_from(value: $wire) -> Result<Self, $crate::convert::field::Invalid> {
                type Wire = $wire;
                match value {
                    Wire::Unspecified => {
                        let allowed = [$(Wire::$variant.as_str_name()),+].join(", ");
                        Err($crate::convert::field::Invalid::here(format!(
                            "must be one of {allowed}"
                        )))
                    }
                    $(Wire::$variant => Ok(Self::$variant),)+
                }
            }
        }
    };
}
pub(super) use choices;

#[cfg(test)]
mod tests {
    use super::*;
    use berth_domain::id::OperationId;
    use berth_domain::name::{HostName, VmName};

    #[test]
    fn errors_name_the_field_and_the_rule() {
        let error = Invalid::new("format", "must be one of A, B")
            .within("disks[2]")
            .within("template");
        assert_eq!(
            error.to_string(),
            "template.disks[2].format: must be one of A, B"
        );
        let refusal = Refusal::from(error);
        assert_eq!(refusal.reason, "INVALID_FIELD");
        assert_eq!(refusal.metadata["field"], "template.disks[2].format");

        let check = |error: Invalid, expected: &str| assert_eq!(error.to_string(), expected);
        check(
            name::<HostName>("", "host").unwrap_err(),
            "host: is required, as hosts/{host}",
        );
        check(
            name::<VmName>("hosts/a", "vm").unwrap_err(),
            "vm: must be a name like vms/{vm}, not \"hosts/a\"",
        );
        check(
            uuid::<Uuid>("a\n", "uid").unwrap_err(),
            "uid: must be a UUID, as 01234567-89ab-cdef-0123-456789abcdef, not \"a\\n\"",
        );
        check(
            text("abc".into(), "note", 2).unwrap_err(),
            "note: has 3 bytes; at most 2 are allowed",
        );
        check(
            cpus("3-1", "cpus").unwrap_err(),
            "cpus: must be a CPU list: range \"3-1\" in CPU list \"3-1\" runs backwards",
        );
        check(
            resources([("vcpu".to_owned(), 1)].into(), "resources").unwrap_err(),
            "resources[\"vcpu\"]: \"vcpu\" is not a valid resource class: 1 to 255 characters out \
             of A-Z, 0-9 and _",
        );
    }

    /// Goal: the sender of a wrong id finds it again in the refusal, however long it is.
    #[test]
    fn wrong_ids_are_repeated_up_to_a_length() {
        let error = name::<VmName>(&"ü".repeat(100_000), "vm").unwrap_err();
        let expected = format!("{:?} and 99936 characters more", "ü".repeat(64));
        assert!(error.rule.ends_with(&expected), "{error}");
        let error = name::<OperationId>("operations/1", "name").unwrap_err();
        assert!(error.rule.ends_with(", not \"operations/1\""), "{error}");
    }

    #[test]
    fn moments_keep_their_milliseconds() {
        for ms in [0, 1, 999, 1000, 1_700_000_000_123, u64::MAX] {
            assert_eq!(time(Some(timestamp(TimeMs(ms))), "t"), Ok(TimeMs(ms)));
            assert_eq!(optional_duration_ms(Some(duration(ms)), "d"), Ok(Some(ms)));
        }
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0)] {
            assert!(time(Some(Timestamp { seconds, nanos }), "t").is_err());
        }
        assert_eq!(optional_time(None, "t"), Ok(None));
        assert!(time(None, "t").is_err());
    }

    #[test]
    fn leases_are_bounded() {
        assert_eq!(lease_ttl_ms(Some(duration(1_000)), "ttl"), Ok(1_000));
        for ms in [0, 999, 600_001] {
            assert!(lease_ttl_ms(Some(duration(ms)), "ttl").is_err(), "{ms}");
        }
        assert!(lease_ttl_ms(None, "ttl").is_err());
    }

    #[test]
    fn one_uuid_has_one_text() {
        let id = "01234567-89ab-cdef-0123-456789abcdef";
        assert!(uuid::<Uuid>(id, "uid").is_ok());
        for bad in [
            "",
            "0",
            "0123456789abcdef0123456789abcdef",
            &format!("{{{id}}}"),
        ] {
            assert!(uuid::<Uuid>(bad, "uid").is_err(), "{bad:?}");
        }
        assert_eq!(optional_uuid::<Uuid>("", "uid"), Ok(None));
    }
}
