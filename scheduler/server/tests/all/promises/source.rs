//! How the handlers of writes are written: nothing that can fail comes after the outcome.

use std::fs;
use std::path::Path;

/// What hands a write to the replica.
const WRITES: [&str; 8] = [
    ".command(",
    ".submit(",
    ".submit_then(",
    ".add_member(",
    ".change_members(",
    ".promote(",
    ".record_addresses(",
    ".remove_member(",
];
/// What a handler may wait for after that: its failure states that the outcome is unknown.
const AFTER: &str = "members_after_change().await";

/// Goal: the outcome of a write is not replaced by the error of a read that came after it, as that
/// the member is stopping, which states that nothing was done. Method: in the sources of the
/// handlers, the only await after a write is the write's own; what else a response needs is read
/// by the closure of `submit_then`.
#[test]
fn nothing_can_fail_after_the_outcome_of_a_write() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut handlers, mut wrong) = (0, Vec::new());
    for folder in ["src/service", "../placement-api/src/endpoints"] {
        for file in fs::read_dir(source.join(folder)).expect("the sources") {
            let file = file.expect("a file");
            let text = fs::read_to_string(file.path()).expect("text");
            for function in text.split("async fn ").skip(1) {
                let writes = WRITES.iter().filter_map(|write| function.find(write));
                let Some(at) = writes.min() else { continue };
                handlers += 1;
                let end = function.find(['(', '<']).expect("a signature");
                let name = format!("{}: {}", file.file_name().display(), &function[..end]);
                let rest = function[at..].replace(AFTER, "");
                if rest.matches(".await").count() > 1 {
                    wrong.push(name);
                }
            }
        }
    }
    println!("{handlers} handlers of writes");
    assert!(handlers > 50, "the sources are elsewhere");
    assert!(wrong.is_empty(), "they wait after a write: {wrong:?}");
}
