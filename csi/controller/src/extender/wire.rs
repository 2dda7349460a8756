//! What a Kubernetes scheduler sends and reads: `k8s.io/kube-scheduler/extender/v1`.
//!
//! Since 1.18 its types have no names of their own for JSON: fields are sent as they are called in
//! Go (`Pod`, `NodeNames`), and read in any case; before that they were sent in lower case. So the
//! fields of ExtenderArgs are read here in any case, and answers are written byte for byte as Go
//! writes those types.
//!
//! Invariant: nodes go back as they came; nothing of them is read but the name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::kubernetes::object::{Object, Pod};

/// The request.
#[derive(Debug, Default)]
pub(super) struct Args<'a> {
    pub(super) pod: Pod,
    pub(super) candidates: Candidates<'a>,
}

/// The candidate nodes.
#[derive(Debug, Default)]
pub(super) enum Candidates<'a> {
    /// None are named, which is not an empty list.
    #[default]
    None,
    /// Whole nodes.
    Nodes(Vec<Node<'a>>),
    /// Names, for an extender that is configured as `nodeCacheCapable`.
    Names(Vec<Cow<'a, str>>),
}

/// A node as it came.
#[derive(Debug)]
pub(super) struct Node<'a> {
    name: Cow<'a, str>,
    whole: &'a RawValue,
}

impl<'a> Candidates<'a> {
    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the names, in the order in which they came.
    pub(super) fn names(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match self {
            Self::None => Box::new(std::iter::empty()),
            Self::Nodes(nodes) => Box::new(nodes.iter().map(|node| &*node.name)),
            Self::Names(names) => Box::new(names.iter().map(|name| &**name)),
        }
    }

    /// Returns those that fit, as they came.
    pub(super) fn filtered(&self, fits: &mut dyn FnMut(&str) -> bool) -> Left<'_> {
        match self {
            Self::None => Left::default(),
            Self::Nodes(nodes) => {
                let fitting = nodes.iter().filter(|node| fits(&node.name));
                let items: Vec<&RawValue> = fitting.map(|node| node.whole).collect();
                Left {
                    nodes: Some(NodeList {
                        metadata: Empty {},
                        items: Some(items).filter(|items| !items.is_empty()),
                    }),
                    names: None,
                }
            }
            Self::Names(names) => {
                let fitting = names.iter().map(|name| &**name).filter(|name| fits(name));
                Left {
                    nodes: None,
                    names: Some(fitting.collect()),
                }
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Args<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Args<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ExtenderArgs: an object with pod, and nodes or nodenames")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Args<'de>, M::Error> {
                let mut pod: Option<Object<Pod>> = None;
                let mut nodes: Option<Nodes<'de>> = None;
                let mut names: Option<Vec<Text<'de>>> = None;
                while let Some(Text(key)) = map.next_key()? {
                    if key.eq_ignore_ascii_case("pod") {
                        pod = map.next_value()?;
                    } else if key.eq_ignore_ascii_case("nodes") {
                        nodes = map.next_value()?;
                    } else if key.eq_ignore_ascii_case("nodenames") {
                        names = map.next_value()?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                let candidates = match (nodes, names) {
                    (Some(nodes), _) => Candidates::Nodes(nodes.items),
                    (None, Some(names)) => {
                        Candidates::Names(names.into_iter().map(|Text(name)| name).collect())
                    }
                    (None, None) => Candidates::None,
                };
                let Object(pod) = pod.unwrap_or_default();
                Ok(Args { pod, candidates })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// A text that is copied only if something in it is written with a backslash.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A list of nodes as it came.
#[derive(Debug)]
struct Nodes<'a> {
    items: Vec<Node<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Nodes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow, default)]
            items: Option<Vec<&'a RawValue>>,
        }

        let Object(list) = Object::<List<'de>>::deserialize(deserializer)?;
        let items = list.items.unwrap_or_default().into_iter();
        let named = items.map(|whole| {
            Ok(Node {
                name: name_of(whole)?,
                whole,
            })
        });
        let items: Result<_, serde_json::Error> = named.collect();
        let items = items.map_err(serde::de::Error::custom)?;
        Ok(Self { items })
    }
}

/// Returns the name of a node. What comes after its metadata, which are first, is not read again.
fn name_of(whole: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    #[derive(Default, Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        name: Option<Text<'a>>,
    }

    struct Head<'f, 'a>(&'f mut Option<Metadata<'a>>);

    impl<'de> Visitor<'de> for Head<'_, 'de> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a node")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
            while let Some(Text(key)) = map.next_key()? {
                if key == "metadata" {
                    let metadata: Option<Metadata<'de>> = map.next_value()?;
                    *self.0 = Some(metadata.unwrap_or_default());
                    // The only way not to read what is left.
                    return Err(serde::de::Error::custom("that is enough"));
                }
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }

    let mut found = None;
    let mut reader = serde_json::Deserializer::from_str(whole.get());
    let read = reader.deserialize_map(Head(&mut found));
    match found {
        Some(metadata) => Ok(metadata.name.map(|Text(name)| name).unwrap_or_default()),
        None => read.map(|()| Cow::default()),
    }
}

/// The candidates that are left.
#[derive(Debug, Default)]
pub(super) struct Left<'a> {
    nodes: Option<NodeList<'a>>,
    names: Option<Vec<&'a str>>,
}

#[derive(Debug, Serialize)]
struct NodeList<'a> {
    metadata: Empty,
    /// Go writes a list that nothing was put into as null.
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Serialize)]
struct Empty {}

/// What `filter` answers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FilterResult<'a> {
    nodes: Option<NodeList<'a>>,
    node_names: Option<Vec<&'a str>>,
    /// By node. Taking pods away from it may help: inline volumes go with them.
    failed_nodes: Option<BTreeMap<String, String>>,
    failed_and_unresolvable_nodes: Option<BTreeMap<String, String>>,
    error: &'a str,
}

impl<'a> FilterResult<'a> {
    pub(super) fn of(left: Left<'a>, failed: BTreeMap<String, String>) -> Self {
        Self {
            nodes: left.nodes,
            node_names: left.names,
            failed_nodes: Some(failed),
            failed_and_unresolvable_nodes: None,
            error: "",
        }
    }

    pub(super) fn error(error: &'a str) -> Self {
        Self {
            nodes: None,
            node_names: None,
            failed_nodes: None,
            failed_and_unresolvable_nodes: None,
            error,
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts are JSON, and nodes were")
    }
}

/// How well one node fits, from 0 to 10.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct HostPriority<'a> {
    pub(super) host: &'a str,
    pub(super) score: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(json: &str) -> Option<Vec<String>> {
        let args: Args<'_> = serde_json::from_str(json).unwrap();
        let names = args.candidates.names().map(str::to_owned).collect();
        (!args.candidates.is_none()).then_some(names)
    }

    #[test]
    fn fields_are_read_in_any_case() {
        for json in [
            r#"{"Pod":null,"Nodes":{"metadata":{},"items":[{"metadata":{"name":"a"}}]},"NodeNames":null}"#,
            r#"{"nodes":{"items":[{"spec":{},"metadata":{"x":1,"name":"a"}}]}}"#,
            r#"{"NODENAMES":["a"],"other":{"deep":[1,{}]}}"#,
            r#"{"nodenames":["\u0061"]}"#,
        ] {
            assert_eq!(names(json), Some(vec!["a".to_owned()]), "{json}");
        }
        assert_eq!(names(r#"{"Nodes":{"items":null}}"#), Some(vec![]));
        assert_eq!(names(r#"{"NodeNames":[]}"#), Some(vec![]));
        assert_eq!(names(r#"{"Nodes":null}"#), None);
        for nameless in ["{}", r#"{"metadata":null}"#, r#"{"metadata":{}}"#] {
            let json = format!(r#"{{"Nodes":{{"items":[{nameless}]}}}}"#);
            assert_eq!(names(&json), Some(vec![String::new()]), "{json}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for json in [
            "",
            "[]",
            "5",
            "null",
            "{",
            r#"{"Pod":5}"#,
            r#"{"Nodes":[]}"#,
            r#"{"Nodes":{"items":{}}}"#,
            r#"{"NodeNames":"a"}"#,
            r#"{"Nodes":{"items":[5]}}"#,
            r#"{"Nodes":{"items":[["a"]]}}"#,
            r#"{"Nodes":{"items":[{"metadata":{"name":5}}]}}"#,
            r#"{"Nodes":{"items":[{"metadata":{"name":"a"},"spec":}]}}"#,
            r#"{"NodeNames":["a"]} x"#,
        ] {
            assert!(serde_json::from_str::<Args<'_>>(json).is_err(), "{json}");
        }
    }
}
