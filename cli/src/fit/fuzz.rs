//! Goal: whatever a line holds, it is answered: with a fit that keeps the rules, with reasons, or
//! with an error and a message of bounded length. Method: random bytes, cases in which some values
//! are exchanged, cases whose text is spoilt, and flavors with random keys and values.
//!
//! More cases: `PROPTEST_CASES=1000000 cargo test -p berth-cli fuzz`.

use berth_domain::numa::{
    ExactDemand, Ground, Guest, HostUsage, Outline, Strategy as Preference, fit, verify,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::case;
use super::{Options, guest, host, json as reading, respond};
use crate::fit::reader::Field;

/// The maximum length of a message: it repeats little of the input.
const MESSAGE_LENGTH_MAX: usize = 4096;

/// Some JSON, mostly small.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u64..20).prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        "\\PC{0,8}".prop_map(Value::from),
        "[0-9,^-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("[a-z_]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Returns where all values of a case are.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), out);
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                pointers(value, &format!("{at}/{name}"), out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Numbers that break what does not expect them.
fn odd_number() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("NaN".to_owned()),
        Just("-1".to_owned()),
        Just("0".to_owned()),
        Just("1e400".to_owned()),
        Just("-0.0".to_owned()),
        Just("9223372036854775808".to_owned()),
        Just("18446744073709551615".to_owned()),
        Just("18446744073709551616".to_owned()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
    ]
}

/// One way to spoil a text.
#[derive(Clone, Debug)]
enum Spoil {
    Byte(prop::sample::Index, u8),
    Cut(prop::sample::Index, usize),
    Repeat(prop::sample::Index, usize),
    Nest(prop::sample::Index, usize),
    Number(prop::sample::Index, String),
}

fn spoil() -> impl Strategy<Value = Spoil> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Spoil::Byte(at, byte)),
        (at(), 1_usize..40).prop_map(|(at, length)| Spoil::Cut(at, length)),
        (at(), 1_usize..60).prop_map(|(at, length)| Spoil::Repeat(at, length)),
        (at(), 1_usize..300).prop_map(|(at, depth)| Spoil::Nest(at, depth)),
        (at(), odd_number()).prop_map(|(at, number)| Spoil::Number(at, number)),
    ]
}

fn spoilt(mut text: Vec<u8>, spoil: Spoil) -> Vec<u8> {
    if text.is_empty() {
        return text;
    }
    match spoil {
        Spoil::Byte(at, byte) => *at.get_mut(&mut text) = byte,
        Spoil::Cut(at, length) => {
            let at = at.index(text.len());
            text.drain(at..(at + length).min(text.len()));
        }
        Spoil::Repeat(at, length) => {
            let at = at.index(text.len());
            let again = text[at..(at + length).min(text.len())].to_vec();
            text.splice(at..at, again);
        }
        Spoil::Nest(at, depth) => {
            let at = at.index(text.len());
            text.splice(at..at, std::iter::repeat_n(b'[', depth));
        }
        Spoil::Number(at, number) => {
            let from = at.index(text.len());
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            if let Some(first) = text[from..].iter().position(is_digit).map(|n| from + n) {
                let rest = text[first..].iter().position(|byte| !is_digit(byte));
                let end = rest.map_or(text.len(), |n| first + n);
                text.splice(first..end, number.into_bytes());
            }
        }
    }
    text
}

/// Keys and values of flavors that mean something, and others.
fn spec() -> impl Strategy<Value = (String, String)> {
    let key = prop_oneof![
        8 => prop::sample::select(vec![
            "hw:numa_nodes", "hw:numa_cpus.0", "hw:numa_cpus.1", "hw:numa_mem.0", "hw:numa_mem.1",
            "hw:cpu_policy", "hw:cpu_dedicated_mask", "hw:cpu_thread_policy", "hw:cpu_realtime",
            "hw:emulator_threads_policy", "hw:cpu_realtime_mask", "hw:mem_page_size",
            "hw:pci_numa_affinity_policy", "hw:pmem", "resources:PCPU", "resources:VCPU",
            "trait:HW_CPU_HYPERTHREADING", "hw:cpu_sockets", "hw:cpu_threads",
        ]).prop_map(str::to_owned),
        1 => "[a-z:_.0-9]{0,20}",
    ];
    let value = prop_oneof![
        4 => prop::sample::select(vec![
            "1", "2", "4", "0-1", "2-3", "0-3", "^0", "^0-3", "dedicated", "mixed", "shared",
            "prefer", "isolate", "require", "share", "true", "small", "large", "any", "2MB",
            "1GB", "512", "256", "required", "forbidden", "socket", "legacy", "SMALL,LARGE",
        ]).prop_map(str::to_owned),
        1 => odd_number(),
        1 => "\\PC{0,12}",
    ];
    (key, value)
}

/// Checks an answer: its parts go together, and what fits keeps the rules.
fn sound(line: &[u8], response: &Value) -> Result<(), TestCaseError> {
    let reasons = response["reasons"].as_array().map_or(0, Vec::len);
    prop_assert_eq!(
        response["fits"] == json!(true),
        reasons == 0,
        "{}",
        response
    );
    prop_assert_eq!(
        response["error"].is_string(),
        response["message"].is_string()
    );
    let message = response["message"].as_str().unwrap_or_default();
    prop_assert!(
        message.len() <= MESSAGE_LENGTH_MAX,
        "{} bytes: {message}",
        message.len()
    );
    prop_assert_eq!(response["error"].is_string() && message.is_empty(), false);
    if response["fits"] == json!(false) {
        return Ok(());
    }
    let case = reading::read(line).expect("it was read before");
    let field = Field::new(&case);
    let host = host::read(&field, Options::default()).expect("as before");
    let guest = guest::read(&field).expect("as before").expect("as before");
    let outline = Outline::new(&host.topology, &host.usage, &host.limits);
    let ground = Ground {
        topology: &host.topology,
        usage: &host.usage,
        outline: &outline,
    };
    let demand = ExactDemand {
        topology: guest.topology.as_ref(),
        pci: &guest.pci,
        ..ExactDemand::default()
    };
    let given = fit(ground, &Guest::new(demand), Preference::Spread);
    let given = given.map_err(|refusal| TestCaseError::fail(refusal.to_string()))?;
    prop_assert_eq!(verify(ground, demand, &given), Ok(()));
    let mut after: HostUsage = host.usage.clone();
    after.add(&host.topology, &given);
    after.remove(&host.topology, &given);
    prop_assert_eq!(after.pci, host.usage.pci);
    Ok(())
}

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: cases.map_or(default, |text| text.parse().expect("a number")),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        sound(&bytes, &respond(&bytes, Options::default()))?;
    }

    #[test]
    fn any_change_of_a_case_is_answered(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any_json()), 1..4),
        with_pci in any::<bool>(),
    ) {
        let mut case = case();
        if with_pci {
            case["pci_requests"] = json!([{"count": 1, "spec": [{"vendor_id": "8086"}],
                                           "numa_policy": "socket"}]);
        }
        for (at, value) in changes {
            let mut all = Vec::new();
            pointers(&case, "", &mut all);
            let at: &String = at.get(&all);
            *case.pointer_mut(at).unwrap() = value;
        }
        let line = case.to_string();
        sound(line.as_bytes(), &respond(line.as_bytes(), Options::default()))?;
    }

    #[test]
    fn any_spoilt_text_is_answered(spoils in proptest::collection::vec(spoil(), 1..5)) {
        let line = spoils.into_iter().fold(case().to_string().into_bytes(), spoilt);
        sound(&line, &respond(&line, Options::default()))?;
    }

    #[test]
    fn any_flavor_is_answered(
        pairs in proptest::collection::vec(spec(), 0..7),
        image in proptest::collection::vec(spec(), 0..3),
        vcpus in prop_oneof![4 => 1_u64..5, 1 => any::<u64>()],
        memory in prop_oneof![4 => 1_u64..5, 1 => any::<u64>()],
    ) {
        let mut case = case();
        case["instance"] = Value::Null;
        let specs: serde_json::Map<_, _> = pairs.into_iter().map(|(k, v)| (k, json!(v))).collect();
        let memory = memory.saturating_mul(256);
        case["flavor"] = json!({"vcpus": vcpus, "memory_mb": memory, "extra_specs": specs});
        let property = |(key, value): (String, String)| {
            (key.replacen("hw:", "hw_", 1), json!(value))
        };
        case["image"] = Value::Object(image.into_iter().map(property).collect());
        let line = case.to_string();
        sound(line.as_bytes(), &respond(line.as_bytes(), Options::default()))?;
    }
}
