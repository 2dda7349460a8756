//! The terminal while the program draws on all of it, and as it was before.
//!
//! Not here: what is drawn.
//!
//! Invariant: whichever way the program ends - a key, a signal, an error, a panic - the terminal is restored
//! first: the screen of before, the cursor, the mode of its input.

use std::io::{self, Stdout, Write as _};
use std::panic;

use berth_domain::refusal::{Code, Refusal};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::paint::Terminal as Abilities;
use crate::output;

/// The reason of a refusal: the output is no terminal, or one that cannot be drawn on.
pub const TERMINAL_NEEDED: &str = "TERMINAL_NEEDED";

/// A terminal that is drawn on; restored when it is dropped.
pub struct Screen {
    terminal: ratatui::Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    ///
    /// It does not accept that.
    pub fn open() -> anyhow::Result<Self> {
        let stdout = output::screen().ok_or_else(|| needed("standard output is not a terminal"))?;
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
        let mut screen = Self {
            terminal: ratatui::Terminal::new(CrosstermBackend::new(stdout))?,
        };
        // From here on every return restores it.
        enable_raw_mode()?;
        execute!(screen.terminal.backend_mut(), EnterAlternateScreen, Hide)?;
        screen.clear()?;
        Ok(screen)
    }

    /// Draws what has changed.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    pub fn draw<T>(
        &mut self,
        render: impl FnOnce(&mut ratatui::buffer::Buffer) -> T,
    ) -> anyhow::Result<T> {
        let mut result = None;
        self.terminal
            .draw(|frame| result = Some(render(frame.buffer_mut())))?;
        result.ok_or_else(|| anyhow::anyhow!("the terminal drew nothing"))
    }

    /// Has everything drawn again: the terminal has another size, or what is on it is damaged.
    ///
    /// # Errors
    ///
    /// The terminal is gone.
    pub fn clear(&mut self) -> anyhow::Result<()> {
        // `Terminal::clear` would read the position of the cursor, for which the terminal would have to
        // answer between two keys.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal. Errors are of no use: there is no terminal to show them on.
fn restore() {
    if let Some(mut stdout) = output::screen() {
        let _ = execute!(stdout, LeaveAlternateScreen, Show);
        let _ = stdout.flush();
    }
    let _ = disable_raw_mode();
}

/// Checks that there is a terminal to draw on; returns what it shows.
///
/// # Errors
///
/// Why there is none.
pub fn check() -> Result<Abilities, Refusal> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if output::screen().is_none() {
        return Err(needed("standard output is not a terminal"));
    }
    if !io::IsTerminal::is_terminal(&io::stdin()) {
        return Err(needed(
            "standard input is not a terminal, so there are no keys",
        ));
    }
    let kind = variable("TERM");
    if kind == "dumb" || kind.is_empty() {
        let message = format!("the terminal cannot be drawn on: TERM is \"{kind}\"");
        return Err(needed(&message));
    }
    Ok(Abilities {
        color: variable("NO_COLOR").is_empty(),
        unicode: is_utf8([variable("LC_ALL"), variable("LC_CTYPE"), variable("LANG")]),
    })
}

fn needed(why: &str) -> Refusal {
    Refusal::new(Code::FailedPrecondition, TERMINAL_NEEDED, why)
        .with_hint("`berth watch` prints the same changes as lines, or with -o json as JSON")
}

/// Returns whether a locale is UTF-8: the first of these variables that is set decides.
fn is_utf8(variables: [String; 3]) -> bool {
    let set = variables.into_iter().find(|value| !value.is_empty());
    let locale = set.unwrap_or_default().to_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_of_the_locale_decides() {
        let of = |all: &str, ctype: &str, lang: &str| {
            is_utf8([all.to_owned(), ctype.to_owned(), lang.to_owned()])
        };
        assert!(of("", "", "en_US.UTF-8"));
        assert!(of("", "C.utf8", "C"));
        assert!(!of("C", "", "en_US.UTF-8"));
        assert!(!of("", "", ""));
    }
}
