package kernels_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLanguages: kernels.k stays within what Metal and Vulkan accept. There is no
// backend for them yet, nor any of Apple's compilers here: clang checks MSL's types and
// address spaces, and every kernel becomes valid SPIR-V.
func TestLanguages(t *testing.T) {
	text, err := os.ReadFile("kernels.k")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.ReadFile("cache.k")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Metal", func(t *testing.T) {
		need(t, "clang-19")
		run(t, "#include \"metal.h\"\n#undef F32X4\n#define F32X4 make_float4\n#include \"kernels.k\"\n", "clang-19", "--target=spir64", "-x", "clcpp",
			"-cl-std=clc++2021", "-cl-no-stdinc", "-fsyntax-only", "-Wall", "-Werror", "-Wno-unused-function", "-Wno-unknown-pragmas", "-Wno-unknown-attributes",
			"-Itestdata", "-I.", "-")
	})
	t.Run("Vulkan", func(t *testing.T) {
		need(t, "clang-19", "glslangValidator", "spirv-val")
		whole := flatten(string(text), string(cache))
		for _, kernel := range kernelNames(t, whole) {
			glsl := "#version 460\n#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n" +
				"#extension GL_EXT_spirv_intrinsics : require\n#extension GL_KHR_shader_subgroup_shuffle : require\n" +
				string(run(t, "#include \"vulkan.h\"\n"+only(whole, kernel), "clang-19", "-E", "-P", "-undef", "-nostdinc", "-x", "c", "-I.", "-"))
			dir := t.TempDir()
			in, out := filepath.Join(dir, "k.comp"), filepath.Join(dir, "k.spv")
			if err := os.WriteFile(in, []byte(glsl), 0o600); err != nil {
				t.Fatal(err)
			}
			run(t, "", "glslangValidator", "-V", "--target-env", "vulkan1.2", in, "-o", out)
			run(t, "", "spirv-val", "--target-env", "vulkan1.2", out)
		}
	})
}

func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, name := range tools {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIP: %s is not installed (Debian: clang-19, glslang-tools, spirv-tools)", name)
		}
	}
}

func run(t *testing.T, stdin string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out, errors.Bytes())
	}
	return out
}

// flatten puts cache.k into the text wherever it is included, with the names of its
// kernels written out.
func flatten(text, cache string) string {
	suffix := regexp.MustCompile(`#define KV_NAME\(k\) k##(\w+)`)
	name := regexp.MustCompile(`KV_NAME\((\w+)\)`)
	var b strings.Builder
	last := ""
	for line := range strings.Lines(text) {
		if m := suffix.FindStringSubmatch(line); m != nil {
			last = m[1]
			continue
		}
		if strings.HasPrefix(line, `#include "cache.k"`) {
			line = name.ReplaceAllString(cache, "${1}"+last)
		}
		b.WriteString(line)
	}
	return b.String()
}

// kernelNames lists the kernels of a text that all cards have.
func kernelNames(t *testing.T, text string) (names []string) {
	before, rest, _ := strings.Cut(text, "\n#if HAS_MMA\n// The planes")
	_, after, ok := strings.Cut(rest, "\n#endif\n")
	if !ok {
		t.Fatal("no kernels of matrix units")
	}
	for _, m := range regexp.MustCompile(`(?m)^KERNEL_BEGIN\((\w+)`).FindAllStringSubmatch(before+after, -1) {
		names = append(names, m[1])
	}
	return names
}

// only leaves one kernel in a text.
func only(text, kernel string) string {
	return regexp.MustCompile(`(?ms)^KERNEL_BEGIN\((\w+).*?^KERNEL_END`).ReplaceAllStringFunc(text, func(k string) string {
		if strings.HasPrefix(k, fmt.Sprintf("KERNEL_BEGIN(%s,", kernel)) {
			return k
		}
		return ""
	})
}
