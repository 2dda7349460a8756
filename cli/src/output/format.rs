//! The formats of the output, as `--output` names them.
//!
//! ```text
//!   table, wide               what a command shows to people
//!   json, yaml, name, custom  the value of the command, in one of four forms
//! ```
//!
//! Not here: what is written in each of them.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};

/// A format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Tables and pictures
    #[default]
    Table,
    /// Tables with all their columns
    Wide,
    /// One JSON value
    Json,
    /// The same value as YAML
    Yaml,
    /// Names of resources, one a line
    Name,
    /// A table of fields of the value
    Custom,
}

impl Format {
    /// All of them, in the order of the help.
    const ALL: [Self; 6] = [
        Self::Table,
        Self::Wide,
        Self::Json,
        Self::Yaml,
        Self::Name,
        Self::Custom,
    ];

    /// Returns whether it is made of the value of a command, and not of what the command shows to people.
    #[must_use]
    pub fn is_of_value(self) -> bool {
        match self {
            Self::Table | Self::Wide => false,
            Self::Json | Self::Yaml | Self::Name | Self::Custom => true,
        }
    }

    /// Returns how it is typed. `custom=` is followed by fields.
    fn word(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Wide => "wide",
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Name => "name",
            Self::Custom => "custom=",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Table => "Tables and pictures",
            Self::Wide => "Lists with all their columns; else as table",
            Self::Json => "One JSON value; of a stream, one a line",
            Self::Yaml => "The same value as YAML; of a stream, one document each",
            Self::Name => "Names alone, one a line, for xargs",
            Self::Custom => "A table of fields of the JSON, as custom=name,host,spec.flavor.vcpus",
        }
    }

    /// Returns the format that arguments request which clap has refused.
    #[must_use]
    pub fn of_refused(requested: Option<&str>) -> Self {
        requested.map_or(Self::Table, |text| {
            text.parse()
                .map_or(Self::Table, |output: Output| output.format)
        })
    }
}

/// The value of `--output`: a format, and the fields of `custom=`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The format.
    pub format: Format,
    /// The fields of a custom table, as they were typed; none of another format.
    pub fields: Vec<String>,
}

impl std::str::FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let custom = text.strip_prefix(Format::Custom.word());
        let fields = match custom {
            Some(fields) => fields.split(',').map(str::to_owned).collect(),
            None => Vec::new(),
        };
        let known = Format::ALL.into_iter().find(|format| format.word() == text);
        match (custom, known) {
            (Some(_), _) if fields.iter().all(|field| !field.is_empty()) => Ok(Self {
                format: Format::Custom,
                fields,
            }),
            (None, Some(format)) => Ok(Self { format, fields }),
            (Some(_), _) => Err("expected fields behind it, as custom=name,state".to_owned()),
            (None, None) => {
                let words = Format::ALL.map(Format::word).join(", ");
                Err(format!("expected one of {words}FIELD,FIELD"))
            }
        }
    }
}

/// The parser of `--output`, from which help and completion have the formats.
#[derive(Clone, Debug)]
pub struct OutputParser;

impl TypedValueParser for OutputParser {
    type Value = Output;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Output, clap::Error> {
        let parse = |text: &str| text.parse::<Output>();
        parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values =
            Format::ALL.map(|format| PossibleValue::new(format.word()).help(format.help()));
        Some(Box::new(values.into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read_as_they_are_typed() {
        for format in Format::ALL {
            let typed = match format {
                Format::Custom => "custom=name,claim.cpus",
                Format::Table | Format::Wide | Format::Json | Format::Yaml | Format::Name => {
                    format.word()
                }
            };
            let output: Output = typed.parse().expect(typed);
            assert_eq!(output.format, format, "{typed}");
            assert_eq!(
                output.fields.is_empty(),
                format != Format::Custom,
                "{typed}"
            );
        }
        for wrong in [
            "",
            "custom",
            "custom=",
            "custom=a,,b",
            "Json",
            "table,json",
            "xml",
        ] {
            assert!(wrong.parse::<Output>().is_err(), "{wrong}");
        }
    }
}
