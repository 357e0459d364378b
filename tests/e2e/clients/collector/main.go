// Command collector is the OpenTelemetry Collector with one receiver, OTLP, and one exporter: `jsonfile`
// appends each request that was taken to a file, as one line of OTLP's JSON. The collector's own file exporter
// cannot be fetched from the Go proxy.
package main

import (
	"context"
	"log"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
)

// fileConfig is the section `exporters.jsonfile`.
type fileConfig struct {
	Path string `mapstructure:"path"`
}

// jsonFile appends what it is given to a file.
type jsonFile struct {
	component.StartFunc
	component.ShutdownFunc
	path  string
	mutex sync.Mutex
}

func (file *jsonFile) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (file *jsonFile) ConsumeTraces(_ context.Context, traces ptrace.Traces) error {
	line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return err
	}
	file.mutex.Lock()
	defer file.mutex.Unlock()
	out, err := os.OpenFile(file.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = out.Write(append(line, '\n')); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

func newJSONFile(_ context.Context, _ exporter.Settings, config component.Config) (exporter.Traces, error) {
	return &jsonFile{path: config.(*fileConfig).Path}, nil
}

func factories() (otelcol.Factories, error) {
	receivers, err := otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
	if err != nil {
		return otelcol.Factories{}, err
	}
	exporters, err := otelcol.MakeFactoryMap[exporter.Factory](exporter.NewFactory(
		component.MustNewType("jsonfile"),
		func() component.Config { return &fileConfig{} },
		exporter.WithTraces(newJSONFile, component.StabilityLevelDevelopment),
	))
	telemetry := otelconftelemetry.NewFactory()
	return otelcol.Factories{Receivers: receivers, Exporters: exporters, Telemetry: telemetry}, err
}

func main() {
	settings := otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "tests"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{
			ResolverSettings: confmap.ResolverSettings{
				DefaultScheme:     "file",
				ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()},
			},
		},
	}
	if err := otelcol.NewCommand(settings).Execute(); err != nil {
		log.Fatal(err)
	}
}
