//! The values that several resources have.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

/// How volumes are made of persistent memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceMode {
    /// Logical volumes, one volume group for each region.
    #[default]
    Lvm,
    /// A namespace for each volume.
    #[serde(alias = "ndctl")]
    Direct,
}

impl DeviceMode {
    /// Returns the name of the manager of volumes in the agent's configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lvm => "lvm",
            Self::Direct => "direct",
        }
    }
}

/// When the kubelet fetches an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// At each start of a container.
    Always,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
    /// Never.
    Never,
}

impl PullPolicy {
    /// Returns the name in Kubernetes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// Returns the name in the programs' configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Whether new pods are marked for the scheduler extender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MutatePods {
    /// While the controller does not respond, no pod is created.
    Always,
    /// While the controller does not respond, pods are created unmarked.
    #[default]
    Try,
    /// There is no webhook.
    Never,
}

/// A quantity of Kubernetes, as `250Mi` or `100m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quantity(String);

/// What the API server accepts as a quantity of a resource; negative amounts are refused.
const QUANTITY: &str =
    r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$";

/// The percentages of which an upgrade makes progress.
pub(super) const PERCENTAGE: &str = "^([1-9][0-9]?|100)%$";

/// An absolute path that a volume of a pod can have.
pub(super) const DIRECTORY: &str = "^/[^:]*$";
/// The same, or none.
pub(super) const DIRECTORY_OR_NONE: &str = "^(/[^:]*)?$";

impl Quantity {
    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the amount in billionths, or `None` if it is too large to compare.
    #[must_use]
    pub fn nano(&self) -> Option<i128> {
        let unsigned = self.0.strip_prefix('+').unwrap_or(&self.0);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let (scale, exponent) = unit(suffix)?;
        // Digits after the point, and billionths.
        let shift = exponent - i32::try_from(fraction.len()).ok()? + 9;
        let power = 10_i128.checked_pow(shift.unsigned_abs())?;
        let scaled = digits.checked_mul(scale)?;
        match shift {
            0.. => scaled.checked_mul(power),
            ..0 => (scaled % power == 0).then_some(scaled / power),
        }
    }

    /// Parses a quantity.
    ///
    /// # Errors
    ///
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, InvalidQuantity> {
        let invalid = || InvalidQuantity(text.to_owned());
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, suffix) = unsigned
            .find(|c| !is_number(c))
            .map_or((unsigned, ""), |at| unsigned.split_at(at));
        let digits = number.chars().filter(char::is_ascii_digit).count();
        if digits == 0 || number.len() - digits > 1 || !is_suffix(suffix) {
            return Err(invalid());
        }
        Ok(Self(text.to_owned()))
    }
}

/// A suffix as a factor and a power of ten.
fn unit(suffix: &str) -> Option<(i128, i32)> {
    const DECIMAL: [(&str, i32); 10] = [
        ("", 0),
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((1, *exponent));
    }
    if let Some(at) = BINARY.iter().position(|name| *name == suffix) {
        return Some((1 << (10 * (at + 1)), 0));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    (exponent.abs() <= 30).then_some((1, exponent))
}

fn is_suffix(suffix: &str) -> bool {
    const NAMED: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let exponent = suffix.strip_prefix(['e', 'E']).map(|digits| {
        let digits = digits.strip_prefix(['+', '-']).unwrap_or(digits);
        !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
    });
    NAMED.contains(&suffix) || exponent == Some(true)
}

/// The text is no quantity.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no quantity; hint: write it as 250Mi or 100m")]
pub struct InvalidQuantity(String);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// YAML makes an integer of `cpu: 1`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Integer(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Integer(number) => Ok(Self(number.to_string())),
            Written::Text(text) => Self::parse(&text).map_err(D::Error::custom),
        }
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        })
    }
}

/// The resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// The most that it may use.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    /// What is reserved for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

impl Resources {
    /// Returns requests of CPU and memory without limits.
    ///
    /// # Panics
    ///
    /// When the constants of the program are no quantities.
    #[must_use]
    pub fn requests(cpu: &str, memory: &str) -> Self {
        let parse = |text| Quantity::parse(text).expect("a constant quantity");
        let requests = [("cpu", cpu), ("memory", memory)];
        Self {
            limits: BTreeMap::new(),
            requests: requests
                .map(|(name, amount)| (name.to_owned(), parse(amount)))
                .into(),
        }
    }
}
