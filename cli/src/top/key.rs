//! The keys that mean something, read from the terminal.
//!
//! Not here: what they do ([`app`](super::app)).

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// One screen up.
    PageUp,
    /// One screen down.
    PageDown,
    /// To the first row.
    Home,
    /// To the last row.
    End,
    /// Opens what is selected.
    Enter,
    /// Closes what was opened last.
    Escape,
    /// The next view.
    Tab,
    /// The view before.
    BackTab,
    /// Removes the last character that was typed.
    Backspace,
    /// A character.
    Char(char),
    /// Ends the program.
    Interrupt,
}

/// What comes from the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// A key was pressed.
    Key(Key),
    /// The terminal has another size.
    Resized,
}

/// Returns what an event of the terminal means, if it means something.
#[must_use]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "terminals have more keys than mean something"
)]
pub fn input(event: &Event) -> Option<Input> {
    match event {
        Event::Resize(..) => Some(Input::Resized),
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) if key.modifiers.contains(KeyModifiers::CONTROL) => match key.code {
            KeyCode::Char('c' | 'd') => Some(Input::Key(Key::Interrupt)),
            // The screen may be damaged: all of it is drawn.
            KeyCode::Char('l') => Some(Input::Resized),
            _ => None,
        },
        Event::Key(key) => of_code(key.code).map(Input::Key),
        Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => None,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "terminals have more keys than mean something"
)]
fn of_code(code: KeyCode) -> Option<Key> {
    match code {
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        KeyCode::Enter | KeyCode::Right => Some(Key::Enter),
        KeyCode::Esc | KeyCode::Left => Some(Key::Escape),
        KeyCode::Tab => Some(Key::Tab),
        KeyCode::BackTab => Some(Key::BackTab),
        KeyCode::Backspace => Some(Key::Backspace),
        KeyCode::Char(character) => Some(Key::Char(character)),
        _ => None,
    }
}
