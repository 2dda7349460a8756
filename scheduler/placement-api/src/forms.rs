//! The forms of query values: amounts, traits, aggregates, trees.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::fault::{Fault, quoted};
use super::microversion::Microversion;
use super::uuids;

/// Amounts by the name of a class, which may be unknown.
pub(super) type Amounts = BTreeMap<String, u64>;

/// Requested traits, by name; a name may be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// One of each set.
    pub(super) required: Vec<BTreeSet<String>>,
    /// None of these.
    pub(super) forbidden: BTreeSet<String>,
}

/// Requested aggregates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemberOf {
    /// One of each set.
    pub(super) required: Vec<BTreeSet<Uuid>>,
    /// None of these.
    pub(super) forbidden: BTreeSet<Uuid>,
}

/// Reads `VCPU:2,MEMORY_MB:1024`.
pub(super) fn resources(text: &str) -> Result<Amounts, Fault> {
    let badly = |got: &str| {
        Fault::bad_request(format!(
            "Badly formed resources parameter. Expected resources query string parameter in \
             form: ?resources=VCPU:2,MEMORY_MB:1024. Got: {got}."
        ))
    };
    if text.trim().is_empty() {
        return Err(badly("empty string"));
    }
    let mut amounts = Amounts::new();
    for item in text.split(',') {
        let pair = item
            .split_once(':')
            .filter(|(_, amount)| !amount.contains(':'));
        let (class, amount) = pair.ok_or_else(|| badly(&quoted(item)))?;
        let shown = (quoted(class), quoted(amount));
        let number: i128 = amount.trim().parse().map_err(|_| {
            let (class, amount) = &shown;
            Fault::bad_request(format!(
                "Requested resource {class} expected positive integer amount. Got: {amount}."
            ))
        })?;
        if number < 1 {
            let class = &shown.0;
            return Err(Fault::bad_request(format!(
                "Requested resource {class} requires amount >= 1. Got: {number}."
            )));
        }
        // More than any provider has, either way.
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        amounts.insert(class.to_owned(), number);
    }
    Ok(amounts)
}

/// Reads the values of one `required` key.
pub(super) fn required<'v>(
    mut values: impl DoubleEndedIterator<Item = &'v str>,
    version: Microversion,
) -> Result<Traits, Fault> {
    let mut traits = Traits::default();
    if version.has(39) {
        for value in values {
            add_required(value, version, &mut traits)?;
        }
    } else if let Some(last) = values.next_back() {
        add_required(last, version, &mut traits)?;
    }
    Ok(traits)
}

fn add_required(value: &str, version: Microversion, into: &mut Traits) -> Result<(), Fault> {
    let wrong = |what: &str| {
        let got = quoted(value);
        Fault::bad_request(format!("Invalid query string parameters: {what}: {got}"))
    };
    let any_form = "HW_CPU_X86_VMX,CUSTOM_MAGIC";
    if let Some(any) = value.strip_prefix("in:") {
        if !version.has(39) {
            return Err(wrong(&format!(
                "The format 'in:{any_form}' only supported since microversion 1.39. Got"
            )));
        }
        let any: BTreeSet<String> = any.split(',').map(|name| name.trim().to_owned()).collect();
        if any.contains("") {
            return Err(wrong(&format!(
                "Expected 'required' parameter value of the form: in:{any_form}. \
                 Got an empty trait in"
            )));
        }
        if any.iter().any(|name| name.starts_with('!')) {
            return Err(wrong(&format!(
                "The format 'in:{any_form}' does not support forbidden traits. Got"
            )));
        }
        into.required.push(any);
        return Ok(());
    }
    let form = match version.has(22) {
        true => "HW_CPU_X86_VMX,!CUSTOM_MAGIC",
        false => any_form,
    };
    for name in value.split(',').map(str::trim) {
        let bare = name.trim_start_matches('!');
        if bare.is_empty() {
            return Err(wrong(&format!(
                "Expected 'required' parameter value of the form: {form}. Got an empty trait in"
            )));
        }
        if bare.len() == name.len() {
            into.required.push(BTreeSet::from([bare.to_owned()]));
        } else if version.has(22) {
            into.forbidden.insert(bare.to_owned());
        } else {
            return Err(wrong(&format!(
                "Expected 'required' parameter value of the form: {form}. Got"
            )));
        }
    }
    Ok(())
}

/// Reads the values of one `member_of` key, which is `member_of` with this suffix.
pub(super) fn member_of<'v>(
    values: impl Iterator<Item = &'v str>,
    suffix: &str,
    version: Microversion,
) -> Result<MemberOf, Fault> {
    let values: Vec<&str> = values.collect();
    if values.len() > 1 && !version.has(24) {
        return Err(Fault::bad_request(format!(
            "Multiple member_of{suffix} parameters are not supported"
        )));
    }
    let mut member_of = MemberOf::default();
    for value in values {
        let (is_forbidden, list) = member_list(value)?;
        let aggregates = list.split(',').map(|text| {
            uuids::parse(text).ok_or_else(|| {
                let got = quoted(text);
                Fault::bad_request(format!(
                    "Invalid query string parameters: Expected 'member_of' parameter to contain \
                     valid UUID(s). Got: {got}"
                ))
            })
        });
        let aggregates: BTreeSet<Uuid> = aggregates.collect::<Result<_, _>>()?;
        match is_forbidden {
            false => member_of.required.push(aggregates),
            true if version.has(32) => member_of.forbidden.extend(aggregates),
            true => {
                return Err(Fault::bad_request(format!(
                    "Forbidden member_of{suffix} parameters are not supported in the specified \
                     microversion"
                )));
            }
        }
    }
    Ok(member_of)
}

/// Returns whether the aggregates of a `member_of` value are forbidden, and their list.
fn member_list(value: &str) -> Result<(bool, &str), Fault> {
    if let Some(list) = value.strip_prefix("!in:") {
        return Ok((true, list));
    }
    if let Some(list) = value.strip_prefix("in:") {
        return Ok((false, list));
    }
    if value.contains(',') {
        return Err(Fault::bad_request(format!(
            "Multiple values for 'member_of' must be prefixed with the 'in:' or '!in:' keyword \
             using the valid microversion. Got: {}",
            quoted(value)
        )));
    }
    Ok(match value.strip_prefix('!') {
        Some(one) => (true, one),
        None => (false, value),
    })
}

/// Reads the value of an `in_tree` key.
pub(super) fn in_tree(text: &str) -> Result<Uuid, Fault> {
    uuids::parse(text.trim()).ok_or_else(|| {
        let got = quoted(text);
        Fault::bad_request(format!(
            "Invalid query string parameters: Expected 'in_tree' parameter to be a format of \
             uuid. Got: {got}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::super::microversion::agreed as version;
    use super::*;
    use axum::http::StatusCode;

    #[track_caller]
    fn wrong<T: std::fmt::Debug>(result: Result<T, Fault>, part: &str) {
        let fault = result.unwrap_err();
        assert_eq!(fault.status(), StatusCode::BAD_REQUEST);
        assert!(
            format!("{fault:?}").contains(part),
            "{part:?} is not in {fault:?}"
        );
    }

    #[test]
    fn amounts_are_read() {
        let amounts = resources("VCPU:2,MEMORY_MB:1024,VCPU:3").unwrap();
        let expected = [("MEMORY_MB".to_owned(), 1024), ("VCPU".to_owned(), 3)];
        assert_eq!(amounts, Amounts::from(expected));
        for (text, part) in [
            ("", "Got: empty string."),
            ("VCPU", "Got: VCPU."),
            ("VCPU:1:2", "Got: VCPU:1:2."),
            ("VCPU:fred", "Got: fred."),
            ("VCPU:-2", "requires amount >= 1. Got: -2."),
        ] {
            wrong(resources(text), part);
        }
        assert_eq!(resources("A:99999999999999999999").unwrap()["A"], u64::MAX);
    }

    #[test]
    fn traits_are_read_by_version() {
        let read =
            |values: &[&'static str], minor| required(values.iter().copied(), version(minor));
        let all = read(&["A,!B", "in:C,D"], 39).unwrap();
        assert_eq!(all.required.len(), 2);
        assert_eq!(all.forbidden, BTreeSet::from(["B".to_owned()]));
        let last = read(&["A,B", "C"], 22).unwrap();
        assert_eq!(last.required, [BTreeSet::from(["C".to_owned()])]);
        wrong(
            read(&["!A"], 21),
            "of the form: HW_CPU_X86_VMX,CUSTOM_MAGIC. Got: !A",
        );
        wrong(
            read(&["A,,B"], 22),
            "HW_CPU_X86_VMX,!CUSTOM_MAGIC. Got an empty trait in: A,,B",
        );
        wrong(
            read(&["in:A"], 38),
            "only supported since microversion 1.39. Got: in:A",
        );
        wrong(read(&["in:A,!B"], 39), "does not support forbidden traits");
    }

    #[test]
    fn aggregates_are_read_by_version() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let both = format!("in:{a},{b}");
        let read = |values: &[&str], minor| member_of(values.iter().copied(), "1", version(minor));
        let filter = read(&[&both, &format!("!{a}")], 32).unwrap();
        assert_eq!(filter.required, [BTreeSet::from([a, b])]);
        assert_eq!(filter.forbidden, BTreeSet::from([a]));
        wrong(read(&[&both, &both], 23), "Multiple member_of1 parameters");
        wrong(
            read(&[&format!("!{a}")], 31),
            "Forbidden member_of1 parameters",
        );
        wrong(
            read(&[&format!("{a},{b}")], 31),
            "must be prefixed with the 'in:'",
        );
        wrong(read(&["x"], 31), "valid UUID(s). Got: x");
    }
}
