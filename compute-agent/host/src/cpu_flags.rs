//! What the processor can do, as traits: read from the flags in `proc/cpuinfo`.
//!
//! Invariant: a trait is there only if every CPU has its flag.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use berth_domain::resource::Trait;

/// How much of `proc/cpuinfo` is read; a machine with 8192 CPUs writes some 13 MiB.
const FILE_MAX: u64 = 64 * 1024 * 1024;

/// Each flag of the kernel with its trait of os-traits.
const FLAGS: [(&str, &str); 49] = [
    ("3dnow", "HW_CPU_X86_3DNOW"),
    ("abm", "HW_CPU_X86_ABM"),
    ("aes", "HW_CPU_X86_AESNI"),
    ("amx_bf16", "HW_CPU_X86_AMXBF16"),
    ("amx_int8", "HW_CPU_X86_AMXINT8"),
    ("amx_tile", "HW_CPU_X86_AMXTILE"),
    ("avx", "HW_CPU_X86_AVX"),
    ("avx2", "HW_CPU_X86_AVX2"),
    ("avx512_bitalg", "HW_CPU_X86_AVX512BITALG"),
    ("avx512_vbmi2", "HW_CPU_X86_AVX512VBMI2"),
    ("avx512_vnni", "HW_CPU_X86_AVX512VNNI"),
    ("avx512_vpopcntdq", "HW_CPU_X86_AVX512VPOPCNTDQ"),
    ("avx512bw", "HW_CPU_X86_AVX512BW"),
    ("avx512cd", "HW_CPU_X86_AVX512CD"),
    ("avx512dq", "HW_CPU_X86_AVX512DQ"),
    ("avx512er", "HW_CPU_X86_AVX512ER"),
    ("avx512f", "HW_CPU_X86_AVX512F"),
    ("avx512ifma", "HW_CPU_X86_AVX512IFMA"),
    ("avx512pf", "HW_CPU_X86_AVX512PF"),
    ("avx512vbmi", "HW_CPU_X86_AVX512VBMI"),
    ("avx512vl", "HW_CPU_X86_AVX512VL"),
    ("bmi1", "HW_CPU_X86_BMI"),
    ("bmi2", "HW_CPU_X86_BMI2"),
    ("f16c", "HW_CPU_X86_F16C"),
    ("fma", "HW_CPU_X86_FMA3"),
    ("fma4", "HW_CPU_X86_FMA4"),
    ("md_clear", "HW_CPU_X86_INTEL_MD_CLEAR"),
    ("mmx", "HW_CPU_X86_MMX"),
    ("mpx", "HW_CPU_X86_MPX"),
    ("pclmulqdq", "HW_CPU_X86_CLMUL"),
    ("pcid", "HW_CPU_X86_INTEL_PCID"),
    ("pdpe1gb", "HW_CPU_X86_PDPE1GB"),
    ("pni", "HW_CPU_X86_SSE3"),
    ("rtm", "HW_CPU_X86_TSX"),
    ("sha_ni", "HW_CPU_X86_SHA"),
    ("sse", "HW_CPU_X86_SSE"),
    ("sse2", "HW_CPU_X86_SSE2"),
    ("sse4_1", "HW_CPU_X86_SSE41"),
    ("sse4_2", "HW_CPU_X86_SSE42"),
    ("sse4a", "HW_CPU_X86_SSE4A"),
    ("ssse3", "HW_CPU_X86_SSSE3"),
    ("stibp", "HW_CPU_X86_STIBP"),
    ("svm", "HW_CPU_X86_AMD_SVM"),
    ("svm", "HW_CPU_X86_SVM"),
    ("tbm", "HW_CPU_X86_TBM"),
    ("virt_ssbd", "HW_CPU_X86_AMD_VIRT_SSBD"),
    ("vmx", "HW_CPU_X86_INTEL_VMX"),
    ("vmx", "HW_CPU_X86_VMX"),
    ("xop", "HW_CPU_X86_XOP"),
];

/// Flags whose instructions are those of a trait only if other ones are there too: with 512 bits.
const WIDE: [(&str, &str); 3] = [
    ("gfni", "HW_CPU_X86_AVX512GFNI"),
    ("vaes", "HW_CPU_X86_AVX512VAES"),
    ("vpclmulqdq", "HW_CPU_X86_AVX512VPCLMULQDQ"),
];

/// Flags that a guest has only if the host's KVM passes them on, with the file that shows it.
const NESTED: [(&str, &str); 2] = [
    ("vmx", "sys/module/kvm_intel/parameters/nested"),
    ("svm", "sys/module/kvm_amd/parameters/nested"),
];

/// Returns the traits of the processor whose files are below `root`; none where they are not reported.
pub(crate) fn discover(root: &Path) -> BTreeSet<Trait> {
    let mut common: Option<BTreeSet<String>> = None;
    if let Ok(file) = File::open(root.join("proc/cpuinfo")) {
        let lines = BufReader::new(file.take(FILE_MAX)).lines();
        for line in lines.map_while(Result::ok) {
            let Some(("flags", flags)) = line.split_once(':').map(|(k, v)| (k.trim(), v)) else {
                continue;
            };
            let flags: BTreeSet<_> = flags.split_whitespace().map(str::to_owned).collect();
            common = Some(match common {
                None => flags,
                Some(common) => common.intersection(&flags).cloned().collect(),
            });
        }
    }
    let mut flags = common.unwrap_or_default();
    for (flag, parameter) in NESTED {
        let nested = std::fs::read_to_string(root.join(parameter)).unwrap_or_default();
        if !matches!(nested.trim(), "Y" | "1") {
            flags.remove(flag);
        }
    }
    traits_of(&flags)
}

/// Returns the traits of a processor with these flags, as the kernel calls them.
pub(crate) fn traits_of(flags: &BTreeSet<String>) -> BTreeSet<Trait> {
    let wide = WIDE.iter().filter(|_| flags.contains("avx512f"));
    let all = FLAGS.iter().chain(wide);
    let here = all.filter(|(flag, _)| flags.contains(*flag));
    here.map(|(_, name)| Trait::new(name).expect("the table holds valid names"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trait_is_a_standard_one() {
        for (flag, name) in FLAGS.iter().chain(&WIDE) {
            assert!(Trait::new(name).unwrap().is_standard(), "{flag}: {name}");
        }
    }

    fn names(root: &Path) -> Vec<String> {
        discover(root).iter().map(ToString::to_string).collect()
    }

    /// Goal: a trait is true of a guest on any CPU. Method: two CPUs that differ, with and without
    /// nested virtualisation.
    #[test]
    fn only_what_every_cpu_can_do_is_said() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(names(root.path()), [""; 0]);
        let put = |path: &str, content: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        put(
            "proc/cpuinfo",
            "processor\t: 0\nflags\t\t: sse sse2 avx2 vmx vaes\nbugs\t\t: x\n\n\
             processor\t: 1\nflags\t\t: sse sse2 pni vmx vaes\n",
        );
        assert_eq!(names(root.path()), ["HW_CPU_X86_SSE", "HW_CPU_X86_SSE2"]);
        put("sys/module/kvm_intel/parameters/nested", "Y\n");
        let vmx = ["HW_CPU_X86_INTEL_VMX", "HW_CPU_X86_SSE", "HW_CPU_X86_SSE2"];
        assert_eq!(names(root.path())[..3], vmx);
        let wide = ["avx512f", "vaes"].map(str::to_owned).into();
        let wide: Vec<_> = traits_of(&wide).iter().map(ToString::to_string).collect();
        assert_eq!(wide, ["HW_CPU_X86_AVX512F", "HW_CPU_X86_AVX512VAES"]);
    }
}
