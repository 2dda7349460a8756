//! The reasons of refusals.

use std::collections::BTreeSet;

use berth_backup::{Access, ReadError, Remedy, VerifyError};

/// Returns an error of each kind that has a reason of its own.
fn errors() -> Vec<VerifyError> {
    let text = String::new;
    vec![
        VerifyError::Nothing,
        VerifyError::Read(ReadError::Io(std::io::ErrorKind::Other.into())),
        VerifyError::Read(ReadError::Foreign),
        VerifyError::Read(ReadError::Truncated("header")),
        VerifyError::Read(ReadError::Damaged("header")),
        VerifyError::Read(ReadError::Newer { actual: 9 }),
        VerifyError::SecondFull,
        VerifyError::OtherCluster {
            expected: text(),
            actual: text(),
        },
        VerifyError::Gap { first: 1, last: 2 },
        VerifyError::Overlap { after: 1, end: 2 },
        VerifyError::OtherHistory {
            index: 1,
            what: "term",
        },
        VerifyError::State("unknown rows".into()),
        VerifyError::NotReached { end: 1, at: 2 },
        VerifyError::Rows {
            index: 1,
            actual: 1,
            stated: 2,
        },
        VerifyError::Invariant {
            index: 1,
            what: text(),
        },
    ]
}

/// Returns the remedy of each error with which a file does not open for reading.
fn opened() -> Vec<Remedy> {
    use std::io::ErrorKind;
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::PermissionDenied,
        ErrorKind::IsADirectory,
        ErrorKind::AlreadyExists,
        ErrorKind::Other,
    ];
    let of = |kind: ErrorKind| Remedy::of_file(Access::Read, &kind.into());
    kinds.map(of).to_vec()
}

/// Goal: what helps differs by the cause, and by whether the file was to be read or made.
#[test]
fn a_file_that_does_not_open_has_a_remedy() {
    use std::io::ErrorKind;
    let of = |access, kind: ErrorKind| Remedy::of_file(access, &kind.into());
    let written = |kind| of(Access::Write, kind);
    assert_eq!(written(ErrorKind::NotFound).reason, "FILE_NOT_FOUND");
    assert_eq!(written(ErrorKind::AlreadyExists).reason, "FILE_EXISTS");
    assert_eq!(written(ErrorKind::StorageFull).reason, "FILE_UNUSABLE");
    assert_eq!(of(Access::Read, ErrorKind::IsADirectory), Remedy::DIRECTORY);
    let full = written(ErrorKind::StorageFull).hint;
    assert!(full.contains("make space"), "{full}");
    let hints = opened()
        .iter()
        .map(|remedy| remedy.hint)
        .collect::<BTreeSet<_>>();
    assert_eq!(hints.len(), 4, "{hints:?}");
    let directory = VerifyError::Read(ReadError::Io(ErrorKind::IsADirectory.into()));
    assert_eq!(directory.remedy(), Remedy::DIRECTORY);
}

/// Goal: an operator who reads a reason finds it in the document, and the document names none that is
/// never given.
#[test]
fn every_reason_is_documented() {
    let document = include_str!("../../../../docs/backup.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split(" |").next());
    let names = cells.flat_map(|cell| cell.split('`'));
    let is_name = |word: &&str| word.chars().all(|c| c == '_' || c.is_ascii_uppercase());
    let documented: BTreeSet<&str> = names
        .filter(|word| word.len() > 3)
        .filter(is_name)
        .collect();
    let mut given: BTreeSet<&str> = errors().iter().map(|e| e.remedy().reason).collect();
    given.extend(opened().iter().map(|remedy| remedy.reason));
    given.insert(Remedy::REDACTED.reason);
    assert_eq!(documented, given);
    assert!(errors().iter().all(|error| !error.remedy().hint.is_empty()));
}
