// Command collector is an OpenTelemetry Collector with what the tests need: OTLP in, text out.
package main

import (
	"log"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/loggingexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	exporters, err := exporter.MakeFactoryMap(loggingexporter.NewFactory())
	if err != nil {
		log.Fatal(err)
	}
	receivers, err := receiver.MakeFactoryMap(otlpreceiver.NewFactory())
	if err != nil {
		log.Fatal(err)
	}
	command := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "collector", Version: "0.79.0"},
		Factories: otelcol.Factories{Exporters: exporters, Receivers: receivers},
	})
	if err := command.Execute(); err != nil {
		log.Fatal(err)
	}
}
