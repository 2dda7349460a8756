//! `berth support bundle`: what helps to find a fault, in one file that holds no secrets.
//!
//! ```text
//!   schedulers ─▶ collect ─▶ redact ─▶ tar ─▶ FILE ─▶ open ─▶ the same commands (`--bundle`)
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `calls` | which calls are recorded |
//! | `collect` | making them, at the leader and at each member |
//! | `state` | the state as a backup without secrets |
//! | `redact` | what of a message leaves the cluster |
//! | `manifest` | what a bundle states about itself |
//! | `tar`, `messages`, `wire` | the container; messages as JSON, and as bytes |
//! | `open`, `recorded` | reading a bundle, and answering commands with it |
//!
//! Invariant: nothing is written that did not pass `redact`, except texts of this command; and a file has
//! its name only when it is complete.

mod calls;
mod collect;
mod manifest;
mod messages;
pub(crate) mod open;
pub(crate) mod recorded;
mod redact;
mod state;
mod tar;
mod wire;

use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use berth_backup::Access;
use berth_domain::refusal::{Code, Refusal};
use berth_files::Draft;
use serde_json::json;

use self::collect::Collected;
use self::manifest::Manifest;
pub(crate) use self::messages::message as descriptor;
use self::redact::Redactor;
use crate::arguments::{Support, SupportBundle};
use crate::backup::{refusal, show};
use crate::output;
use crate::session::Session;

/// The size of the buffer in front of the file.
const BUFFER_BYTES: usize = 256 << 10;

/// Runs a verb of `berth support`.
///
/// # Errors
///
/// Why the bundle cannot be made.
pub async fn run(session: &Session, verb: Support) -> anyhow::Result<()> {
    match verb {
        Support::Bundle(args) => bundle(session, &args).await,
    }
}

async fn bundle(session: &Session, args: &SupportBundle) -> anyhow::Result<()> {
    // Before the schedulers have any work.
    let draft = draft(&args.file, args.force)?;
    let key = args.hash_names.then(new_key);
    let redactor = Redactor::new(key);
    let mut collected = collect::collect(session, args, &redactor).await?;
    if args.with_state {
        let file = collect::backup(session).await?;
        let file = state::redacted(&file, &redactor)?;
        collected.files.insert(manifest::STATE.to_owned(), file);
    }
    let manifest = Manifest::new(&collected, args);
    let bytes = write(draft, &manifest, &collected, args)?;
    report(session, args, &manifest, bytes)
}

/// Returns a key that no other bundle has. It is not kept: two bundles cannot be compared by their names.
fn new_key() -> [u8; 32] {
    let mut key = [0; 32];
    let halves = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    for (part, half) in key.chunks_exact_mut(16).zip(halves) {
        part.copy_from_slice(half.as_bytes());
    }
    key
}

fn draft(path: &Path, force: bool) -> Result<Draft, Refusal> {
    let refused = |error: &io::Error| refusal::of_file(Access::Write, path, error);
    if path.as_os_str() == "-" {
        let message = "a support bundle is not written to standard output";
        let refusal = Refusal::new(Code::InvalidArgument, "FILE_NEEDED", message);
        return Err(refusal.with_hint("name a file, or leave it out for berth-support.tar"));
    }
    if !force && path.symlink_metadata().is_ok_and(|there| there.is_file()) {
        let refusal = refused(&io::ErrorKind::AlreadyExists.into());
        return Err(refusal.with_hint("name another file, or replace this one with --force"));
    }
    Draft::create(path).map_err(|error| refused(&error))
}

/// Writes the file and gives it its name. Returns its size.
fn write(
    draft: Draft,
    manifest: &Manifest,
    collected: &Collected,
    args: &SupportBundle,
) -> anyhow::Result<u64> {
    let written = || -> io::Result<u64> {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, draft);
        let modified_s = manifest.created_ms / 1_000;
        let first = serde_json::to_vec_pretty(manifest)?;
        tar::write(&mut out, manifest::NAME, &first, modified_s)?;
        for (name, content) in &collected.files {
            tar::write(&mut out, name, content, modified_s)?;
        }
        tar::end(&mut out)?;
        out.flush()?;
        let draft = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        draft.commit(args.force)?;
        Ok(args.file.metadata()?.len())
    };
    Ok(written().map_err(|error| refusal::of_file(Access::Write, &args.file, &error))?)
}

fn report(
    session: &Session,
    args: &SupportBundle,
    manifest: &Manifest,
    bytes: u64,
) -> anyhow::Result<()> {
    let file = args.file.display();
    if session.for_programs() {
        return output::value(
            &json!({"file": args.file, "bytes": bytes, "files": manifest.files.len(),
            "has_state": manifest.has_state(), "names_hashed": manifest.names_hashed,
            "missing": manifest.missing}),
        );
    }
    for missing in &manifest.missing {
        output::message(format!("missing: {}: {}", missing.what, missing.why));
    }
    output::message(format!(
        "the support bundle is in {file}: {} files, {}; read it before you send it",
        manifest.files.len(),
        show::size(bytes)
    ));
    Ok(())
}
