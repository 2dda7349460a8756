//! Records that are named by the beginning of their ids, as far as it is of one record only.
//!
//! Invariant: of several records none is chosen.

use berth_domain::refusal::{Code, Refusal};
use uuid::Uuid;

/// The least number of characters: fewer are a slip of the keyboard rather than an id.
const LENGTH_MIN: usize = 4;
/// How many of several records are named.
const NAMED_MAX: usize = 5;
/// How a UUID is written; `x` is a hexadecimal digit.
const SHAPE: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

/// Returns whether a text may be the beginning of an id, and is not all of it.
pub(crate) fn is_beginning(text: &str) -> bool {
    let has_shape = text.chars().zip(SHAPE.chars()).all(|pair| match pair {
        (c, 'x') => c.is_ascii_hexdigit(),
        (c, hyphen) => c == hyphen,
    });
    has_shape && (LENGTH_MIN..SHAPE.len()).contains(&text.len())
}

/// Returns the only id of a kind of records, as `operation`, that begins with a text.
///
/// # Errors
///
/// None does, or several do.
pub(crate) fn only(
    kind: &str,
    text: &str,
    ids: impl IntoIterator<Item = Uuid>,
) -> Result<Uuid, Refusal> {
    let text = text.to_ascii_lowercase();
    let begins = |id: &Uuid| id.to_string().starts_with(&text);
    let found: Vec<Uuid> = ids.into_iter().filter(begins).collect();
    match &found[..] {
        [id] => Ok(*id),
        [] => Err(Refusal::new(
            Code::NotFound,
            &format!("{}_NOT_FOUND", kind.to_ascii_uppercase()),
            format!("the id of no {kind} begins with {text}"),
        )
        .with_hint(format!("`berth {kind} list` shows which there are"))),
        several => {
            let named = several.iter().take(NAMED_MAX).map(Uuid::to_string);
            let named: Vec<String> = named.collect();
            let further = match several.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                further => format!(" and {further} more"),
            };
            let count = several.len();
            let message = format!(
                "the ids of {count} {kind}s begin with {text}: {}{further}",
                named.join(", ")
            );
            let refusal = Refusal::new(Code::InvalidArgument, "AMBIGUOUS_ID", message);
            Err(refusal.with_hint("type more of the id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_the_beginning_of_an_id() {
        for good in ["01a2", "01A226D4", "01a226d4-", "01a226d4-311c-75fc"] {
            assert!(is_beginning(good), "{good}");
        }
        for bad in [
            "",
            "01a",
            "db01",
            "01a226d43",
            "01a2-",
            "01a226d4-311c-75fc-8083-01b2196402ff",
            "01a226d4-311c-75fc-8083-01b2196402ff0",
        ] {
            assert_eq!(is_beginning(bad), bad == "db01", "{bad}");
        }
    }

    #[test]
    fn of_several_records_none_is_chosen() {
        let ids = [0x0101, 0x0102, 0x0203].map(|high: u128| Uuid::from_u128(high << 112));
        assert_eq!(only("operation", "0203", ids), Ok(ids[2]));
        assert_eq!(only("operation", "0101", ids), Ok(ids[0]));
        let several = only("operation", "010", ids).expect_err("two begin so");
        assert_eq!(several.reason, "AMBIGUOUS_ID");
        for part in ["2 operations", &ids[0].to_string(), &ids[1].to_string()] {
            assert!(several.message.contains(part), "{several}");
        }
        let none = only("operation", "0909", ids).expect_err("none does");
        assert_eq!(none.reason, "OPERATION_NOT_FOUND");
        assert!(
            none.hint
                .is_some_and(|hint| hint.contains("berth operation list"))
        );
        let many = (0..9).map(|low| Uuid::from_u128(1 << 112 | low));
        let many = only("migration", "0001", many).expect_err("nine do");
        assert!(many.message.ends_with("and 4 more"), "{many}");
    }
}
