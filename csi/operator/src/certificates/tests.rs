//! Goal: certificates are made once, kept as long as they are right, and renewed in time; given ones are
//! checked before anything uses them. Method: an authority in a directory, and each thing that can change.

use berth_tls::authority;
use serde_json::json;

use super::*;
use crate::resource::{Kind, Resource};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn signer() -> Signer {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = authority::init(folder.path(), "test", 30).expect("an authority");
    let read = |path| std::fs::read(path).expect("a file");
    let files = Files::from([
        (AUTHORITY_CERT.to_owned(), read(&pair.cert)),
        (AUTHORITY_KEY.to_owned(), read(&pair.key)),
    ]);
    Signer::read(&files).expect("an authority")
}

fn owner() -> Owner {
    let object = json!({"metadata": {"name": "d.example", "uid": "u"}});
    Resource::parse(Kind::BerthStorage, &object).owner
}

fn node(name: &str, address: &str) -> Node {
    Node {
        name: name.to_owned(),
        labels: BTreeMap::new(),
        addresses: vec![address.parse().expect("an address")],
    }
}

struct Case {
    owner: Owner,
    spec: BerthStorageSpec,
    nodes: Vec<Node>,
    now: SystemTime,
}

impl Case {
    fn new() -> Self {
        Self {
            owner: owner(),
            spec: BerthStorageSpec::default(),
            nodes: vec![node("n1", "10.0.0.1"), node("n2", "10.0.0.2")],
            now: SystemTime::now(),
        }
    }

    fn run(&self, existing: &Existing, signer: Option<&Signer>) -> Result<Credentials, Error> {
        let needs = Needs {
            owner: &self.owner,
            spec: &self.spec,
            namespace: "berth",
            nodes: &self.nodes,
            validity: DAY * 9,
            now: self.now,
        };
        credentials(&needs, existing, signer)
    }
}

/// The secrets that the objects of these credentials are.
fn stored(credentials: &Credentials) -> Existing {
    let mut existing = Existing::default();
    let files = &mut existing.controller;
    files.insert("ca.pem".to_owned(), credentials.ca.clone());
    files.insert("cert.pem".to_owned(), credentials.controller.cert.clone());
    files.insert("key.pem".to_owned(), credentials.controller.key.clone());
    for (name, pair) in each(credentials) {
        let files = &mut existing.nodes;
        files.insert(format!("agent-{name}.pem"), pair.cert.clone());
        files.insert(format!("agent-{name}-key.pem"), pair.key.clone());
    }
    existing
}

fn each(credentials: &Credentials) -> &BTreeMap<String, Pair> {
    let NodePairs::Each(pairs) = &credentials.nodes else {
        panic!("one for each node")
    };
    pairs
}

#[test]
fn what_is_made_is_accepted_and_kept() {
    let (signer, case) = (signer(), Case::new());
    let made = case
        .run(&Existing::default(), Some(&signer))
        .expect("certificates");
    let bundle = |pair: &Pair| {
        let (cert, key) = (pair.cert.clone(), pair.key.clone());
        let ca = made.ca.clone();
        move |host: &str| {
            let bundle = Bundle {
                ca: &ca,
                cert: &cert,
                key: &key,
            };
            bundle.check_serves(host).expect("it serves");
            bundle.check().expect("it is valid")
        }
    };
    let controller = bundle(&made.controller)("d-example-controller.berth.svc");
    assert_eq!(controller.principal(), "csi-controller:d.example");
    let agent = bundle(&each(&made)["n2"])("10.0.0.2");
    assert_eq!(agent.principal(), "agent:n2");
    assert!(case.run(&stored(&made), Some(&signer)).expect("kept") == made);
    // Without the authority they are good as long as they are.
    assert!(case.run(&stored(&made), None).expect("kept") == made);
}

/// Goal: exactly what is not right any more is made again.
#[test]
fn each_change_replaces_what_it_is_about() {
    let signer = signer();
    let before = Case::new()
        .run(&Existing::default(), Some(&signer))
        .expect("certificates");
    let changed = |case: &Case, existing: &Existing| {
        let after = case.run(existing, Some(&signer)).expect("certificates");
        let mut changed = Vec::new();
        if after.controller != before.controller {
            changed.push("controller".to_owned());
        }
        for (name, pair) in each(&after) {
            if each(&before).get(name) != Some(pair) {
                changed.push(name.clone());
            }
        }
        changed
    };
    let mut case = Case::new();
    case.nodes[1] = node("n2", "10.0.0.9");
    assert_eq!(changed(&case, &stored(&before)), ["n2"]);
    case.nodes = vec![node("n1", "10.0.0.1"), node("n3", "10.0.0.3")];
    assert_eq!(changed(&case, &stored(&before)), ["n3"]);
    let mut renamed = Case::new();
    renamed.owner.name = "e.example".to_owned();
    assert_eq!(changed(&renamed, &stored(&before)), ["controller"]);
    let mut damaged = stored(&before);
    damaged
        .controller
        .insert("key.pem".to_owned(), b"no key".to_vec());
    damaged.nodes.remove("agent-n1.pem");
    assert_eq!(changed(&Case::new(), &damaged), ["controller", "n1"]);
    let mut swapped = stored(&before);
    let other = swapped.nodes["agent-n2-key.pem"].clone();
    swapped.nodes.insert("agent-n1-key.pem".to_owned(), other);
    assert_eq!(changed(&Case::new(), &swapped), ["n1"]);
}

/// Goal: they are renewed when a third of their validity is left, and not before.
#[test]
fn they_are_renewed_in_time() {
    let (signer, mut case) = (signer(), Case::new());
    let made = case
        .run(&Existing::default(), Some(&signer))
        .expect("certificates");
    let existing = stored(&made);
    case.now = SystemTime::now() + DAY * 6 - Duration::from_secs(600);
    assert!(case.run(&existing, Some(&signer)).expect("kept") == made);
    case.now = SystemTime::now() + DAY * 6 + Duration::from_secs(600);
    let renewed = case.run(&existing, Some(&signer)).expect("renewed");
    assert!(renewed.controller != made.controller);
    for (name, pair) in each(&renewed) {
        assert!(each(&made)[name] != *pair, "{name}");
    }
    assert!(matches!(case.run(&existing, None), Err(Error::NoAuthority)));
}

#[test]
fn another_authority_replaces_all() {
    let case = Case::new();
    let made = case
        .run(&Existing::default(), Some(&signer()))
        .expect("certificates");
    let other = signer();
    let replaced = case
        .run(&stored(&made), Some(&other))
        .expect("certificates");
    assert!(replaced.ca == other.ca && replaced.controller != made.controller);
    assert!(
        each(&replaced)
            .iter()
            .all(|(name, pair)| each(&made)[name] != *pair)
    );
}

#[test]
fn a_wrong_authority_is_a_fault() {
    let good = signer();
    let key = signer();
    let error = |files: &[(&str, &[u8])]| {
        let files = files
            .iter()
            .map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()));
        Signer::read(&files.collect())
            .err()
            .expect("a fault")
            .to_string()
    };
    assert!(error(&[]).contains("has no ca.pem"));
    assert!(error(&[(AUTHORITY_CERT, &good.ca)]).contains("has no ca-key.pem"));
    assert!(error(&[(AUTHORITY_CERT, &good.ca), (AUTHORITY_KEY, b"x")]).contains("no authority"));
    let spec = CertificateSpec {
        role: Role::Agent,
        name: "n1".to_owned(),
        dns: Vec::new(),
        ips: Vec::new(),
        validity: DAY,
    };
    let (cert, own) = key.authority.sign(&spec).expect("a certificate");
    let leaf = error(&[
        (AUTHORITY_CERT, cert.as_bytes()),
        (AUTHORITY_KEY, own.as_bytes()),
    ]);
    assert!(leaf.contains("no authority"), "{leaf}");
    let other = error(&[(AUTHORITY_CERT, &good.ca), (AUTHORITY_KEY, own.as_bytes())]);
    assert!(other.contains("of another key"), "{other}");
    assert!(matches!(
        Case::new().run(&Existing::default(), None),
        Err(Error::NoAuthority)
    ));
}

#[test]
fn too_many_nodes_are_a_fault() {
    let mut case = Case::new();
    case.nodes = (0..=NODES_MAX)
        .map(|i| node(&format!("n{i}"), "10.0.0.1"))
        .collect();
    let error = case.run(&Existing::default(), Some(&signer()));
    assert!(matches!(error, Err(Error::TooManyNodes(401))));
}

fn given(signer: &Signer, controller: &CertificateSpec, nodes: &CertificateSpec) -> Certificates {
    use k8s_openapi::ByteString;
    let bytes = |text: String| ByteString(text.into_bytes());
    let (controller_cert, controller_key) =
        signer.authority.sign(controller).expect("a certificate");
    let (node_cert, node_key) = signer.authority.sign(nodes).expect("a certificate");
    Certificates {
        ca: ByteString(signer.ca.clone()),
        controller_cert: bytes(controller_cert),
        controller_key: bytes(controller_key),
        node_cert: bytes(node_cert),
        node_key: bytes(node_key),
    }
}

/// Goal: certificates of the resource are used as they are, under PMEM-CSI's names too, and each thing
/// that would keep a program from using them is a fault that says which.
#[test]
fn given_certificates_are_checked() {
    let spec = |role, name: &str, dns: &[&str]| CertificateSpec {
        role,
        name: name.to_owned(),
        dns: dns.iter().map(ToString::to_string).collect(),
        ips: Vec::new(),
        validity: DAY,
    };
    let host = "d-example-controller.berth.svc";
    let controller = spec(Role::CsiController, "pmem-registry", &[host]);
    let nodes = spec(Role::Agent, "pmem-node-controller", &["n1", "n2"]);
    let signer = signer();
    let run = |certificates: Certificates, policy| {
        let mut case = Case::new();
        case.spec.certificates = Some(certificates);
        case.spec.mutate_pods = policy;
        case.run(&Existing::default(), None)
            .map_err(|error| error.to_string())
    };
    let good = given(&signer, &controller, &nodes);
    let used = run(good.clone(), MutatePods::Try).expect("they are good");
    assert!(used.ca == signer.ca && used.controller.cert == good.controller_cert.0);
    assert!(matches!(&used.nodes, NodePairs::Shared(pair) if pair.key == good.node_key.0));

    let unnamed = given(&signer, &spec(Role::CsiController, "c", &[]), &nodes);
    let error = run(unnamed.clone(), MutatePods::Always)
        .err()
        .expect("a fault");
    assert!(
        error.contains("controller's certificate") && error.contains(host),
        "{error}"
    );
    assert!(run(unnamed, MutatePods::Never).is_ok());

    let other = self::signer();
    let cases: [(Certificates, &str); 5] = [
        (given(&signer, &nodes, &nodes), "controller's certificate"),
        (
            given(&signer, &controller, &controller),
            "agents' certificate",
        ),
        (
            given(&signer, &controller, &spec(Role::Agent, "n1", &[])),
            "it is not that of node n2",
        ),
        (
            Certificates {
                ca: k8s_openapi::ByteString(other.ca.clone()),
                ..good.clone()
            },
            "is not valid",
        ),
        (
            Certificates {
                node_key: good.controller_key.clone(),
                ..good.clone()
            },
            "agents' certificate in the resource cannot be used: the key is not that of",
        ),
    ];
    for (certificates, expected) in cases {
        let error = run(certificates, MutatePods::Try).err().expect("a fault");
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
