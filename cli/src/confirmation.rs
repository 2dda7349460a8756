//! A question to the user before something is done that cannot be taken back.

use std::io::{BufRead as _, IsTerminal as _};

use anyhow::bail;

use crate::output;

/// Requests a confirmation on the terminal; `what` is a sentence, and `otherwise` states what was left undone.
///
/// # Errors
///
/// It is denied, or standard input is no terminal.
pub(crate) fn request(what: &str, otherwise: &str) -> anyhow::Result<()> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        bail!("standard input is no terminal, so the plan cannot be confirmed: give --yes");
    }
    output::message(format!("{what} Go on? [y/N]"));
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("{otherwise}"),
    }
}
