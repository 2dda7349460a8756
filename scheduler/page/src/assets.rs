//! The style, the script and the icon, as they are served.

/// A file that is part of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asset {
    /// The style.
    Style,
    /// The script, without which the page works too.
    Script,
    /// The icon.
    Icon,
}

impl Asset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Style, Self::Script, Self::Icon];

    /// Returns the path that it is served at.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Style => "/page.css",
            Self::Script => "/page.js",
            Self::Icon => "/page.svg",
        }
    }

    /// Returns its type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Style => "text/css; charset=utf-8",
            Self::Script => "text/javascript; charset=utf-8",
            Self::Icon => "image/svg+xml",
        }
    }

    /// Returns what it holds.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Style => include_str!("../assets/page.css"),
            Self::Script => include_str!("../assets/page.js"),
            Self::Icon => include_str!("../assets/page.svg"),
        }
    }
}
