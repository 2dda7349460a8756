//! A setting that a flavor and an image may both make, and who made it.

/// Who makes a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// An extra spec of the flavor, `hw:NAME`.
    Flavor,
    /// A property of the image, `hw_NAME`.
    Image,
}

impl Side {
    /// Returns the key of the setting that is called `name`, as `cpu_policy`.
    pub(super) fn key(self, name: &str) -> String {
        match self {
            Self::Flavor => format!("hw:{name}"),
            Self::Image => format!("hw_{name}"),
        }
    }

    /// Returns the field of a fault in this key.
    pub(super) fn field(self, key: &str) -> String {
        match self {
            Self::Flavor => format!("extra_specs.{key}"),
            Self::Image => format!("image_properties.{key}"),
        }
    }

    /// Returns the field of a fault in the setting that is called `name`.
    pub(super) fn named(self, name: &str) -> String {
        self.field(&self.key(name))
    }
}

/// The values of the flavor and of the image.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Both<T> {
    pub(super) flavor: T,
    pub(super) image: T,
}

impl<T> Both<T> {
    pub(super) fn of(&mut self, side: Side) -> &mut T {
        match side {
            Side::Flavor => &mut self.flavor,
            Side::Image => &mut self.image,
        }
    }
}

/// A value with the text that it was read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettingValue<'a, T> {
    pub(super) value: T,
    pub(super) text: &'a str,
}

/// A setting that may be made on either side.
pub(super) type Setting<'a, T> = Both<Option<SettingValue<'a, T>>>;

impl<'a, T: Copy> Setting<'a, T> {
    /// Returns the side that sets it, its value and its text; the flavor where both do.
    pub(super) fn first(&self) -> Option<(Side, SettingValue<'a, T>)> {
        let flavor = self.flavor.map(|setting| (Side::Flavor, setting));
        flavor.or_else(|| self.image.map(|setting| (Side::Image, setting)))
    }

    /// Returns the value, the flavor's where both sides set it.
    pub(super) fn value(&self) -> Option<T> {
        self.first().map(|(_, setting)| setting.value)
    }
}
